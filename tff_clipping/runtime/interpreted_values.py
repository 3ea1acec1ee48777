"""The values of an interpreted computation, and their ways in and out.

They are: an array for a tensor, what `sequences.elements` takes or a list of
elements for a sequence, a tuple for a structure, a function for a function.
What is at the server is the value itself; what is at the clients is a list, or
an `AllEqual`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow_federated as tff

from tff_clipping.runtime import sequences, values


class AllEqual(NamedTuple):
  """What every client has."""

  value: object


def from_argument(
  argument: Any, type_spec: tff.Type, path: values.Path, numbers: list[int]
) -> Any:
  """Returns an argument of a computation as a value.

  Args:
    argument: The argument, or a part of it.
    type_spec: Its type.
    path: Where it is in the whole argument, for errors.
    numbers: To which the number of clients of each part at the clients is
      added.

  Raises:
    TypeError: If `argument` is not of its type.
  """
  if isinstance(type_spec, tff.FederatedType):
    if type_spec.placement is tff.CLIENTS and not type_spec.all_equal:
      clients = values.client_values(argument, path)
      numbers.append(len(clients))
      return [
        from_argument(client, type_spec.member, (*path, i), numbers)
        for i, client in enumerate(clients)
      ]
    member = from_argument(argument, type_spec.member, path, numbers)
    return member if type_spec.placement is tff.SERVER else AllEqual(member)
  if isinstance(type_spec, tff.StructType):
    return tuple(
      from_argument(element, element_type, (*path, key), numbers)
      for key, element, element_type in values.struct_elements(
        argument, type_spec, path
      )
    )
  value = values.flatten(argument, type_spec, path)[0]
  # What is passed on is a result, which no later change of the argument is.
  return value.copy() if isinstance(value, np.ndarray) else value


def to_result(value: Any, type_spec: tff.Type) -> Any:
  """Returns a value in the Python containers of its type."""
  if isinstance(type_spec, tff.FederatedType):
    if isinstance(value, AllEqual):
      value = value.value
    elif type_spec.placement is tff.CLIENTS:
      return [to_result(v, type_spec.member) for v in value]
    return to_result(value, type_spec.member)
  if isinstance(type_spec, tff.StructType):
    types = tff.structure.iter_elements(type_spec)
    return tff.types.type_to_py_container(
      tff.structure.Struct(
        [
          (name, to_result(v, t))
          for (name, t), v in zip(types, value, strict=True)
        ]
      ),
      type_spec,
    )
  if isinstance(type_spec, tff.SequenceType):
    if isinstance(value, list):
      return [to_result(v, type_spec.element) for v in value]
    return sequences.elements(value, type_spec.element)
  if not isinstance(value, np.ndarray):
    return value
  # As TensorFlow returns it: a scalar of NumPy where there is no shape.
  return values.read_only(value) if value.shape else value[()]


def to_leaves(value: Any, type_spec: tff.Type) -> list:
  """Returns the leaves of a value, as TensorFlow takes them."""
  if isinstance(type_spec, tff.StructType):
    return [
      leaf
      for v, t in zip(value, type_spec, strict=True)
      for leaf in to_leaves(v, t)
    ]
  if isinstance(type_spec, tff.SequenceType) and isinstance(value, list):
    rows = [to_leaves(element, type_spec.element) for element in value]
    return [sequences.dataset_of_rows(rows, type_spec.element)]
  return [value]


def from_leaves(leaves: Iterable, type_spec: tff.Type) -> Any:
  """Returns leaves as a value; undoes `to_leaves`."""
  return _nested(iter(leaves), type_spec)


def elements(sequence: Any, element_type: tff.Type) -> list:
  """Returns the elements of a sequence, as values."""
  if isinstance(sequence, list):
    return sequence
  return [
    from_leaves(values.flatten(element, element_type), element_type)
    for element in sequences.elements(sequence, element_type)
  ]


def map_leaves(function: Callable, type_spec: tff.Type, *parts: Any) -> Any:
  """Returns what `function` makes of each tensor's type and its values.

  Args:
    function: Takes the type of a tensor, and the tensor of each part.
    type_spec: The type of all parts: a tensor or a structure of tensors.
    *parts: Values.
  """
  if isinstance(type_spec, tff.StructType):
    return tuple(
      map_leaves(function, t, *[part[i] for part in parts])
      for i, t in enumerate(type_spec)
    )
  return function(type_spec, *parts)


def _nested(leaves: Iterator, type_spec: tff.Type) -> Any:
  if isinstance(type_spec, tff.StructType):
    return tuple(_nested(leaves, t) for t in type_spec)
  return next(leaves)
