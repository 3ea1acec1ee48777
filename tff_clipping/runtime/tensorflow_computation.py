"""Runs one TFF TensorFlow computation in a TensorFlow session.

A TFF computation that is plain TensorFlow is a graph, with names of tensors for
its parameter and its result. `TensorFlowComputation` imports the graph once and
calls it many times, from flat lists of arrays to flat lists of arrays.
"""

import itertools
import os
import threading
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.core.framework import dataset_options_pb2, graph_pb2
from tensorflow.core.protobuf import config_pb2

from tff_clipping.runtime import dataset_loops, graph_state
from tff_clipping.runtime.initialization import initialize_first

# Each session has the threads that its configuration asks for. Without this,
# all share those of whoever came first, one for each core, and clients that
# work at the same time wait for each other: a sixth of the time of a round.
# TensorFlow reads it when it first computes.
os.environ.setdefault('TF_OVERRIDE_GLOBAL_THREADPOOL', '1')

# How a client's data set is read. To rewrite its graph and to watch its speed
# takes longer than to read some hundred examples, and changes none of them.
_AS_IT_IS = dataset_options_pb2.Options(
  autotune_options=dataset_options_pb2.AutotuneOptions(enabled=False),
  optimization_options=dataset_options_pb2.OptimizationOptions(
    apply_default_optimizations=False
  ),
).SerializeToString()

_session_tokens = itertools.count()


class TensorFlowComputation:
  """A TFF TensorFlow computation as a callable on flat lists of arrays.

  The parameter is the list of the leaves of the parameter's type, in order: a
  NumPy array or scalar for a tensor, a `tf.data.Dataset` or its serialized
  graph for a sequence. The result is the list of the leaves of the result's
  type: NumPy arrays, and serialized graphs of data sets.

  Variables, tables and iterators of the graph are new in each call, as in TFF,
  so that nothing leaks from one client to the next. Calls from several threads
  are safe: if the graph has variables, each thread has a session of its own; if
  a session keeps something of the graph, each call has.

  Attributes:
    draws: Whether the result may differ from call to call.
  """

  def __init__(
    self,
    computation: tff.framework.ConcreteComputation,
    *,
    results: Sequence[int] | None = None,
    narrow: bool = False,
    intra_op_threads: int = 1,
    inter_op_threads: int = 1,
  ):
    """Imports the graph of `computation`.

    Args:
      computation: A `tff.Computation` that is plain TensorFlow.
      results: Which leaves of the result to compute, in this order; the others
        are not computed at all. `None` is all.
      narrow: Whether to return numbers that are `float32` until a last cast as
        `float32`, and not as the `float64` of the type: the same numbers.
      intra_op_threads: The number of threads within an operation. It decides
        the order of additions, and so the last bits.
      inter_op_threads: The number of operations at the same time. The result
        does not depend on it.

    Raises:
      TypeError: If `computation` is not plain TensorFlow.
    """
    self._graph, self._feeds, fetches = import_computation(computation)
    if results is not None:
      fetches = [fetches[i] for i in results]
    if narrow:
      fetches = [_before_cast(self._graph, name) for name in fetches]
    self._fetches = fetches
    proto = _tensorflow_proto(computation)
    self._token = proto.session_token_tensor_name
    self._config = tf.compat.v1.ConfigProto(
      intra_op_parallelism_threads=intra_op_threads,
      inter_op_parallelism_threads=inter_op_threads,
      use_per_session_threads=True,
      # The graph was optimised when it was compiled; what is left pays here.
      allow_soft_placement=True,
    )
    self._config.gpu_options.allow_growth = True
    self.draws = graph_state.draws(self._graph, self._fetches)
    self._keeps_state = graph_state.keeps_state(self._graph)
    self._local = threading.local()
    is_shared = not proto.initialize_op and not self._keeps_state
    # One session serves all threads.
    self._run_shared = (
      self._callable(self._open_session()) if is_shared else None
    )

  def __call__(self, *leaves) -> Sequence:
    """Runs the graph.

    Args:
      *leaves: The leaves of the parameter.

    Returns:
      A NumPy array for each leaf of the result, or bytes for a sequence.
    """
    fed = [portable(leaf) for leaf in leaves]
    if self._token:
      fed.append(f'call_{next(_session_tokens)}')
    if self._run_shared is not None:
      return self._run_shared(*fed)
    if self._keeps_state:
      with self._open_session() as session:
        return self._callable(session)(*fed)
    if not hasattr(self._local, 'run'):
      self._local.run = self._callable(self._open_session())
    return self._local.run(*fed)

  def _open_session(self) -> tf.compat.v1.Session:
    return tf.compat.v1.Session(graph=self._graph, config=self._config)

  def _callable(self, session: tf.compat.v1.Session) -> Callable[..., Sequence]:
    """Returns a function that runs the graph in a session.

    It is made of a method of TensorFlow that is not public. The public
    `make_callable` looks at all names, shapes and structures again in each
    call, holding Python's lock: four times as long as the sum of two models
    takes.
    """
    if not self._fetches:
      return lambda *leaves: []
    feeds = [*self._feeds, self._token] if self._token else self._feeds
    run = session._make_callable_from_options(
      config_pb2.CallableOptions(feed=feeds, fetch=self._fetches)
    )
    # `object` for strings.
    dtypes = [
      self._graph.get_tensor_by_name(feed).dtype.as_numpy_dtype
      for feed in feeds
    ]

    def call(*leaves):
      return run(
        *[
          np.asarray(leaf, dtype)
          for leaf, dtype in zip(leaves, dtypes, strict=True)
        ]
      )

    return call


def import_computation(
  computation: tff.framework.ConcreteComputation,
) -> tuple[tf.Graph, list[str], list[str]]:
  """Returns a computation's graph, its tensors to feed and those to fetch.

  Args:
    computation: A `tff.Computation` that is plain TensorFlow.

  Raises:
    TypeError: If it is not plain TensorFlow.
  """
  proto = _tensorflow_proto(computation)
  graph = tf.Graph()
  with graph.as_default():
    graph_def = tf.compat.v1.GraphDef()
    proto.graph_def.Unpack(graph_def)
    dataset_loops.replace_reductions(graph_def)
    if proto.initialize_op:
      initialize_first(graph_def, proto.initialize_op)
    feeds, input_map = _sequence_inputs(_leaf_bindings(proto.parameter))
    tf.graph_util.import_graph_def(graph_def, input_map=input_map, name='')
    fetches = _sequence_outputs(graph, _leaf_bindings(proto.result))
  return graph, feeds, fetches


def _tensorflow_proto(computation: tff.framework.ConcreteComputation):
  proto = tff.framework.serialize_computation(computation)
  kind = proto.WhichOneof('computation')
  if kind != 'tensorflow':
    raise TypeError(
      f'`computation` must be a TensorFlow computation, found a {kind}.'
    )
  return proto.tensorflow


def portable(leaf):
  """Returns a leaf as it can be fed here or sent to another process.

  Args:
    leaf: An array, or a `tf.data.Dataset`, of which its serialized graph is
      returned.

  Raises:
    ValueError: If a data set is too large, with the examples in it.
  """
  if not isinstance(leaf, tf.data.Dataset):
    return leaf
  with tf.init_scope():
    graph = tf.raw_ops.DatasetToGraphV2(
      input_dataset=tf.data.experimental.to_variant(leaf)
    ).numpy()
  # What TensorFlow leaves of a graph that is too large.
  if not graph:
    raise ValueError(
      'A data set of a client must be below 2 GiB with all that it holds. '
      'Larger clients are read from a client store '
      '(`tff_clipping.programs.clients.client_store`), or from files inside of '
      'the data set.'
    )
  return graph


def is_of_this_process(graph: bytes) -> bool:
  """Returns whether a data set calls Python functions, which stay here.

  Args:
    graph: What `portable` has returned for it.
  """
  if b'PyFunc' not in graph:
    return False  # To parse it takes as long as what it holds is large.
  parsed = graph_pb2.GraphDef.FromString(graph)
  functions = (function.node_def for function in parsed.library.function)
  nodes = itertools.chain(parsed.node, *functions)
  return any('PyFunc' in node.op for node in nodes)


def _leaf_bindings(binding) -> list:
  """Returns the tensor and sequence bindings of `binding`, in order."""
  kind = binding.WhichOneof('binding')
  if kind is None:
    return []
  if kind == 'struct':
    return [b for e in binding.struct.element for b in _leaf_bindings(e)]
  return [binding]


def _sequence_inputs(bindings):
  """Returns the names to feed, and the variants to map into the graph.

  A data set does not cross into a session as such: it is fed as its serialized
  graph, from which the session builds the variant tensor that TFF binds.
  """
  feeds, input_map = [], {}
  for binding in bindings:
    if binding.WhichOneof('binding') == 'tensor':
      feeds.append(binding.tensor.tensor_name)
      continue
    serialized = tf.compat.v1.placeholder(tf.string, shape=[])
    input_map[binding.sequence.variant_tensor_name] = tf.raw_ops.OptionsDataset(
      input_dataset=tf.raw_ops.DatasetFromGraph(graph_def=serialized),
      serialized_options=_AS_IT_IS,
      # Nobody reads these.
      output_types=[tf.variant],
      output_shapes=[tf.TensorShape(None)],
    )
    feeds.append(serialized.name)
  return feeds, input_map


def _sequence_outputs(graph: tf.Graph, bindings) -> list[str]:
  """Returns the names to fetch: of a data set, that of its serialized graph."""
  fetches = []
  for binding in bindings:
    if binding.WhichOneof('binding') == 'tensor':
      fetches.append(binding.tensor.tensor_name)
      continue
    variant = graph.get_tensor_by_name(binding.sequence.variant_tensor_name)
    fetches.append(tf.raw_ops.DatasetToGraphV2(input_dataset=variant).name)
  return fetches


def source(tensor: tf.Tensor) -> tf.Tensor:
  """Returns the tensor that some identities pass on."""
  while tensor.op.type == 'Identity':
    tensor = tensor.op.inputs[0]
  return tensor


def _before_cast(graph: tf.Graph, name: str) -> str:
  """Returns the name of the `float32` tensor that one was cast from, if any."""
  tensor = source(graph.get_tensor_by_name(name))
  if tensor.op.type != 'Cast' or tensor.dtype != tf.float64:
    return name
  (narrow,) = tensor.op.inputs
  return narrow.name if narrow.dtype == tf.float32 else name
