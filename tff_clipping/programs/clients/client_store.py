"""Client data sets on the disk, read inside the client computation.

A round then takes the ids of its clients, not their data: nothing but a short
string crosses into a client computation, and the cost of a round does not
depend on how many clients there are.

The name of the folder of a store ends in a hash of the content, so equal data
are written once, and a store is never changed.
"""

import collections
import copy
import hashlib
import os
import pathlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import id_forms, storage_errors
from tff_clipping.programs.clients import store_files
from tff_clipping.programs.clients.store_files import ClientStoreError  # noqa: F401

_CLIENTS_AT_A_TIME = 100
# How many examples a function is tried with.
_NUM_TRIED = 3
# Of what `tf.io.decode_raw` makes no tensor.
_UNREADABLE = ('uint32', 'uint64')


class ClientStore:
  """The data sets of a population of clients.

  Attributes:
    path: The folder.
    client_ids: The clients' ids, in the order in which they were written.
    num_examples: The number of examples of each client, in the same order.
    element_spec: The `tf.TensorSpec` of each feature of one example.
  """

  def __init__(self, path: str | os.PathLike):
    """Opens the folder that `write_client_store` made.

    Raises:
      ClientStoreError: If it is no store, or one of its files is missing or not
        of the size that was written.
    """
    self.path = pathlib.Path(path)
    features, self.client_ids, self.num_examples = store_files.open_folder(
      self.path
    )
    self._stored = collections.OrderedDict(
      (name, tf.TensorSpec(shape, dtype)) for name, shape, dtype in features
    )
    self.element_spec: Any = self._stored
    self._preprocess_fns: tuple[Callable, ...] = ()

  def read_client(self, client_id: tf.Tensor) -> Any:
    """Returns all examples of a client; a TensorFlow function.

    Args:
      client_id: The id, a string scalar.

    Returns:
      A tensor for each feature, with a leading dimension of examples.

    Raises:
      KeyError: If there is no such client, outside of a graph.
      tf.errors.NotFoundError: The same in a graph.
      tf.errors.DataLossError: If what is read is not what was written.
    """
    try:
      examples = store_files.read_client(self.path, client_id, self._stored)
    except tf.errors.NotFoundError:
      # An eager tensor holds bytes.
      name = tf.compat.as_str(np.asarray(client_id).item())
      if name in self.client_ids:
        raise  # A file of the store.
      raise KeyError(
        f'`client_id` must be in the store, found {name!r}.'
      ) from None
    for preprocess_fn in self._preprocess_fns:
      examples = _preprocessed(preprocess_fn, examples)
    return examples

  def create_dataset(self, client_id: str) -> tf.data.Dataset:
    """Returns the examples of one client as a data set of single examples.

    Raises:
      KeyError: If there is no such client.
    """
    return tf.data.Dataset.from_tensor_slices(
      self.read_client(tf.constant(client_id))
    )

  def preprocess(
    self,
    preprocess_fn: Callable[
      [collections.OrderedDict[str, tf.Tensor]],
      collections.OrderedDict[str, tf.Tensor],
    ],
  ) -> 'ClientStore':
    """Returns the store with a function applied to what a client reads.

    Each client applies it to its examples once a round. A layer of the model
    does the same in every local step: scaling the images there takes a tenth of
    the time of a small model.

    Args:
      preprocess_fn: A TensorFlow function of the features of all examples of a
        client at once, with a leading dimension of examples, which it keeps.
        One that is made for a single example goes into `tf.map_fn` or
        `tf.vectorized_map`. What it returns may be nested.

    Raises:
      TypeError: If it does not return tensors.
      ValueError: If it does not keep the number of examples. Where only a round
        shows that, the round fails.
    """
    with tf.Graph().as_default():
      examples = preprocess_fn(
        tf.nest.map_structure(
          lambda spec: tf.zeros([_NUM_TRIED, *spec.shape], spec.dtype),
          self.element_spec,
        )
      )
    for values in tf.nest.flatten(examples):
      if not tf.is_tensor(values):
        raise TypeError(
          '`preprocess_fn` must return tensors, by the names of the features, '
          f'found {examples!r}.'
        )
      if not values.shape[:1].is_compatible_with([_NUM_TRIED]):
        raise ValueError(
          '`preprocess_fn` must keep the first dimension, which is that of all '
          'examples of a client: a function of one example goes into '
          f'`tf.map_fn`. Found {values.shape} for {_NUM_TRIED} examples.'
        )
    clients = copy.copy(self)
    clients._preprocess_fns = (*self._preprocess_fns, preprocess_fn)
    clients.element_spec = tf.nest.map_structure(
      lambda values: tf.TensorSpec(values.shape[1:], values.dtype), examples
    )
    return clients


def write_client_store(
  cache_dir: str | os.PathLike,
  name: str,
  examples: Mapping[str, np.ndarray],
  partition: Sequence[np.ndarray],
  client_ids: Sequence[str] | None = None,
) -> ClientStore:
  """Writes arrays with a partition as a store, unless it is there already.

  Args:
    cache_dir: Where the stores are; made if it is missing.
    name: The beginning of the name of the store's folder.
    examples: An array for each feature, all with the same leading dimension of
      examples: booleans, integers (not uint32 and uint64) or floating-point
      numbers; text as the numbers of its tokens.
    partition: For each client the indices of its examples. Clients may share
      examples.
    client_ids: The clients' ids, all different, also to one who reads them
      (`id_forms.SeenIds`); the numbers of the clients ('00000', '00001', ...)
      if not given.

  Raises:
    TypeError: If `partition` is a dictionary.
    ValueError: If `name` is no name of a folder, or the arrays, the indices or
      the ids do not fit together.
    OSError: If `cache_dir` cannot be written.
  """
  examples = collections.OrderedDict(
    (feature, _checked_array(feature, array))
    for feature, array in examples.items()
  )
  lengths = {len(array) for array in examples.values()}
  if len(lengths) != 1:
    raise ValueError(
      f'`examples` must have one number of examples, found {sorted(lengths)}.'
    )
  num_examples = lengths.pop()
  if isinstance(partition, Mapping):
    raise TypeError(
      '`partition` must be a list of arrays of indices, found a '
      f'{type(partition).__name__}: give `list(partition.values())`, and '
      '`list(partition)` as `client_ids`.'
    )
  partition = [_checked_indices(indices) for indices in partition]
  sizes = [len(indices) for indices in partition]
  ends = np.cumsum([0, *sizes])
  rows = np.concatenate([np.zeros(0, np.int64), *partition])
  outside = rows[(rows < 0) | (rows >= num_examples)]
  if outside.size:
    raise ValueError(
      f'`partition` must index {num_examples} examples, found {outside[0]}.'
    )
  if client_ids is None:
    client_ids = [f'{client:05d}' for client in range(len(sizes))]
  if len(client_ids) != len(sizes):
    raise ValueError(
      f'`client_ids` must be as many as the partition has clients, found '
      f'{len(client_ids)} for {len(sizes)}.'
    )
  digest = _new_digest()
  for feature, array in examples.items():
    digest.update(f'{feature} {array.dtype} {array.shape};'.encode())
    digest.update(np.ascontiguousarray(array).data)
  for client, client_id in enumerate(client_ids):
    # `_checked` refuses ids that UTF-8 does not have.
    text = f'{client_id} {sizes[client]};'
    digest.update(text.encode(errors='surrogatepass'))
    digest.update(rows[ends[client] : ends[client + 1]].data)

  def clients():
    # Many clients are picked at a time: it costs as much as to pick one.
    for first in range(0, len(sizes), _CLIENTS_AT_A_TIME):
      some = client_ids[first : first + _CLIENTS_AT_A_TIME]
      start, *stops = ends[first : first + len(some) + 1] - ends[first]
      picked = [
        np.take(array, rows[ends[first] :][: stops[-1]], axis=0)
        for array in examples.values()
      ]
      for client_id, stop in zip(some, stops, strict=True):
        yield client_id, [array[start:stop] for array in picked]
        start = stop

  features = [
    (feature, array.shape[1:], array.dtype.name)
    for feature, array in examples.items()
  ]
  return _write(cache_dir, name, digest, features, clients())


def write_client_data(
  cache_dir: str | os.PathLike,
  name: str,
  client_data: tff.simulation.datasets.ClientData,
) -> ClientStore:
  """Writes a `ClientData` of TFF as a store, unless it is there already.

  Args:
    cache_dir: Where the stores are; made if it is missing.
    name: The beginning of the name of the store's folder.
    client_data: The data. Its examples must be mappings of numbers of fixed
      shapes.

  Raises:
    TypeError: If `client_data` is none.
    ValueError: If `name` is no name of a folder, or a feature is not a number
      of a fixed shape.
    OSError: If `cache_dir` cannot be written.
  """
  if not isinstance(client_data, tff.simulation.datasets.ClientData):
    raise TypeError(
      '`client_data` must be a `tff.simulation.datasets.ClientData`, found '
      f'{type(client_data).__name__}; `TestClientData` makes one from a '
      'dictionary of arrays by client.'
    )
  spec = client_data.element_type_structure
  if not isinstance(spec, Mapping):
    raise ValueError(
      f'`client_data` must have mappings as examples, found {spec}.'
    )
  features = []
  for feature, tensor_spec in spec.items():
    if not tensor_spec.shape.is_fully_defined() or not (
      tensor_spec.dtype.is_integer
      or tensor_spec.dtype.is_floating
      or tensor_spec.dtype.is_bool
    ):
      raise ValueError(
        f'`client_data` must have numbers of fixed shapes, found {tensor_spec} '
        f'for {feature!r}.'
      )
    features.append(
      (feature, tensor_spec.shape.as_list(), tensor_spec.dtype.name)
    )
  client_ids = client_data.client_ids

  def read(client_id):
    dataset = client_data.create_tf_dataset_for_client(client_id)
    rows = list(dataset.as_numpy_iterator())
    return [
      np.array([row[feature] for row in rows], dtype).reshape(-1, *shape)
      for feature, shape, dtype in features
    ]

  digest = _new_digest()
  digest.update(repr((features, client_ids)).encode())
  for client_id in client_ids:
    for array in read(client_id):
      digest.update(f'{array.shape};'.encode())
      digest.update(np.ascontiguousarray(array).data)
  clients = ((client_id, read(client_id)) for client_id in client_ids)
  return _write(cache_dir, name, digest, features, clients)


def default_cache_dir() -> pathlib.Path:
  """Returns the folder for stores and downloads, by the XDG convention.

  Raises:
    StorageError: If the user has no home.
  """
  try:
    base = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
  except RuntimeError as e:
    raise storage_errors.StorageError(
      'There is no home directory for the cache: name a folder by --cache_dir '
      'or by XDG_CACHE_HOME.'
    ) from e
  return pathlib.Path(base) / 'tff_clipping'


def _write(
  cache_dir: str | os.PathLike,
  name: str,
  digest: 'hashlib.blake2b',
  features: store_files.Features,
  clients: store_files.Clients,
) -> ClientStore:
  """Writes a store under its name and digest, unless it is there already."""
  if not isinstance(name, str) or not name or pathlib.Path(name).name != name:
    raise ValueError(f'`name` must be that of a folder, found {name!r}.')
  path = pathlib.Path(cache_dir) / f'{name}-{digest.hexdigest()}'
  store_files.write_folder(path, features, _checked(clients))
  return ClientStore(path)


def _preprocessed(preprocess_fn: Callable, stored: Any) -> Any:
  """Returns what a function makes of examples; fails if it drops some."""
  examples = preprocess_fn(stored)
  num_stored = tf.shape(tf.nest.flatten(stored)[0])[0]
  checks = [
    tf.debugging.assert_equal(
      tf.shape(values)[0],
      num_stored,
      message='`preprocess_fn` must keep the number of examples.',
    )
    for values in tf.nest.flatten(examples)
  ]
  # Outside of a graph they have been made, and are none.
  with tf.control_dependencies([c for c in checks if c is not None]):
    return tf.nest.map_structure(tf.identity, examples)


def _checked(
  clients: store_files.Clients,
) -> Iterator[tuple[str, Sequence[np.ndarray]]]:
  """Yields the clients; raises if an id is there twice, or is none."""
  seen = id_forms.SeenIds('client_ids')
  for client_id, arrays in clients:
    if not isinstance(client_id, str) or not client_id:
      raise ValueError(
        f'`client_ids` must be strings, and not empty, found {client_id!r}.'
      )
    if client_id.encode(errors='replace').decode() != client_id:
      raise ValueError(
        f'`client_ids` must be strings of UTF-8, found {client_id!r}, perhaps '
        'of bytes that were read in another encoding.'
      )
    seen.add_new(client_id)
    yield client_id, arrays


def _checked_indices(indices: Sequence[int] | np.ndarray) -> np.ndarray:
  found = np.asarray(indices)
  if found.ndim != 1 or (found.size and found.dtype.kind not in 'iu'):
    raise ValueError(
      '`partition` must hold an array of indices for each client, found '
      f'{str(indices)[:80]!r}.'
    )
  return found.astype(np.int64)


def _checked_array(feature: str, array) -> np.ndarray:
  array = np.asarray(array)
  if array.dtype.kind not in 'biuf' or array.dtype.name in _UNREADABLE:
    raise ValueError(
      '`examples` must be booleans, integers or floating-point numbers of '
      f'NumPy, but for {" and ".join(_UNREADABLE)}, found {array.dtype} for '
      f'{feature!r}.'
    )
  if 0 in array.shape[1:]:
    raise ValueError(
      f'`examples` must have numbers in each example, found the shape '
      f'{array.shape[1:]} for {feature!r}.'
    )
  if array.dtype.kind == 'f' and not np.isfinite(array).all():
    wrong = ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
    warnings.warn(
      f'`examples` should be finite, found {int(wrong.sum())} of {len(array)} '
      f'for {feature!r} that are not, the first in row {int(wrong.argmax())}: '
      'with a clip, the update of such a client becomes zeros; without one, a '
      'round with such a client leaves the model as it was.',
      stacklevel=4,  # Of the call of `write_client_store`.
    )
  return array.astype(array.dtype.newbyteorder('<'), copy=False)


def _new_digest() -> 'hashlib.blake2b':
  """Begins the digest in a folder's name, which is another for each format."""
  return hashlib.blake2b(f'{store_files.FORMAT};'.encode(), digest_size=8)
