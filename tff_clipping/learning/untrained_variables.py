"""Variables of a model that training must not change.

A model may have variables that training does not change, such as frozen layers.
The graph of a step shows whether a step writes to a variable: an operation that
writes takes the variable as its input. A model must list all of its variables:
nobody trains, sends or saves a variable that is not listed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

ModelFn: TypeAlias = Callable[[], tff.learning.models.VariableModel]

# All that may be done to a variable that stays as it is.
_READS = frozenset(
  [
    'ReadVariableOp',
    'ResourceGather',
    'ResourceGatherNd',
    'VarIsInitializedOp',
    'VariableShape',
  ]
)
_ALIASES = frozenset(['Identity', 'IdentityN'])


def trace_loss(model: tff.learning.models.VariableModel) -> tf.Tensor:
  """Returns the loss of a batch in the current graph, in training mode.

  Args:
    model: A model of that graph, whose inputs are dense tensors.
  """
  batch = tf.nest.map_structure(
    lambda spec: tf.compat.v1.placeholder(spec.dtype, spec.shape),
    model.input_spec,
  )
  return model.forward_pass(batch, training=True).loss


def changed_by_a_step(model_fn: ModelFn) -> list[str]:
  """Returns the names of the untrained variables that a step may change.

  The forward pass in training mode and the gradient are traced, not run. An
  operation counts as a write unless it is known only to read.

  Args:
    model_fn: Returns a new model, whose inputs are dense tensors.
  """
  with tf.Graph().as_default() as graph:
    model = model_fn()
    if not model.non_trainable_variables:
      return []
    # Among them are those that give the variables their first values.
    before = {op.name for op in graph.get_operations()}
    with tf.GradientTape() as tape:
      loss = trace_loss(model)
    tape.gradient(loss, model.trainable_variables)
    handles = {v.name: v.handle.op.name for v in model.non_trainable_variables}
  definition = graph.as_graph_def()
  nodes = [node for node in definition.node if node.name not in before]
  functions = {f.signature.name: f for f in definition.library.function}
  return [
    name
    for name, handle in handles.items()
    if _is_written(nodes, functions, {handle})
  ]


def not_listed(
  model: tff.learning.models.VariableModel, created: Sequence[tf.Variable]
) -> list[str]:
  """Returns the names of variables that the loss needs and the model omits.

  Args:
    model: A model of the current graph, whose inputs are dense tensors.
    created: All variables that were made with it.
  """
  lists = (
    *model.trainable_variables,
    *model.non_trainable_variables,
    *model.local_variables,
  )
  listed = {variable.handle.op.name for variable in lists}
  # The state of a random generator is a variable of integers.
  others = [
    v for v in created if v.dtype.is_floating and v.handle.op.name not in listed
  ]
  if not others:
    return []
  with tf.GradientTape() as tape:
    for variable in others:
      tape.watch(variable)
    loss = trace_loss(model)
  gradients = tape.gradient(loss, others)
  return [
    v.name for v, g in zip(others, gradients, strict=True) if g is not None
  ]


def _is_written(
  nodes: Sequence, functions: Mapping, handles: Iterable[str]
) -> bool:
  """Returns whether some node writes to what one of `handles` gives it.

  Args:
    nodes: Those of a graph or of a function.
    functions: All functions of the graph, by name.
    handles: The nodes and arguments that give a variable.
  """
  handles = set(handles)
  pending = list(nodes)
  while pending:
    waiting = []
    found_alias = False
    for node in pending:
      inputs = [name for name in node.input if not name.startswith('^')]
      places = [
        place
        for place, name in enumerate(inputs)
        if name.split(':')[0] in handles
      ]
      if not places:
        waiting.append(node)
      elif node.op in _ALIASES:
        handles.add(node.name)
        found_alias = True
      elif node.op not in _READS and _call_writes(
        node, len(inputs), places, functions
      ):
        return True
    if not found_alias:
      return False
    # An alias may stand after what takes it.
    pending = waiting
  return False


def _call_writes(
  node, num_inputs: int, places: Sequence[int], functions: Mapping
) -> bool:
  """Returns whether a node writes to its inputs at some places.

  One that calls functions does if one of these does.
  """
  called = [
    functions[function.name]
    for value in node.attr.values()
    for function in (value.func, *value.list.func)
    if function.name in functions
  ]
  for function in called:
    arguments = [argument.name for argument in function.signature.input_arg]
    # The first input of a condition says which function it is.
    skipped = num_inputs - len(arguments)
    handles = {arguments[place - skipped] for place in places}
    if _is_written(function.node_def, functions, handles):
      return True
  return not called
