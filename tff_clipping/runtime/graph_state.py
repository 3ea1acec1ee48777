"""Finds what a TensorFlow graph keeps between runs in a session, and draws.

In TFF no call sees anything of another call. A session drops resources without
a name, and variables are initialized anew in each call. Tables and queues stay.
So do generators of random numbers with a seed, which go on as in TFF's native
context: if they began anew in each round, all rounds would have the same noise,
and a difference of two rounds would have none.
"""

from collections.abc import Iterator, Mapping, Sequence

import tensorflow as tf

# What has a name in the session, or is a part of the session itself.
_KEPT = frozenset(
  f'{name}{version}'
  for name in (
    'MutableHashTable',
    'MutableHashTableOfTensors',
    'MutableDenseHashTable',
    'FIFOQueue',
    'PaddingFIFOQueue',
    'PriorityQueue',
    'RandomShuffleQueue',
    'Barrier',
    'ConditionalAccumulator',
    'ResourceConditionalAccumulator',
    'SparseConditionalAccumulator',
    'Stage',
    'MapStage',
    'OrderedMapStage',
    'RecordInput',
    'Iterator',
    'OneShotIterator',
    'Variable',
    'TemporaryVariable',
    'Mutex',
    'FixedLengthRecordReader',
    'IdentityReader',
    'TextLineReader',
    'TFRecordReader',
    'WholeFileReader',
  )
  for version in ('', 'V2')
)
# Tables that are filled once; not the same for all if by what is fed.
_TABLES = frozenset(['HashTable', 'HashTableV2'])
_TABLE_FILLERS = frozenset(
  f'{name}{version}'
  for name in (
    'InitializeTable',
    'InitializeTableFromTextFile',
    'InitializeTableFromDataset',
    'LookupTableImport',
    'LookupTableInsert',
  )
  for version in ('', 'V2')
)
# Another value in each run, whatever is fed.
_DRAWS = frozenset(
  [
    'RandomUniform',
    'RandomUniformInt',
    'RandomStandardNormal',
    'TruncatedNormal',
    'ParameterizedTruncatedNormal',
    'RandomShuffle',
    'RandomGamma',
    'RandomPoisson',
    'RandomPoissonV2',
    'Multinomial',
    'AllCandidateSampler',
    'FixedUnigramCandidateSampler',
    'LearnedUnigramCandidateSampler',
    'LogUniformCandidateSampler',
    'ThreadUnsafeUnigramCandidateSampler',
    'UniformCandidateSampler',
    'NonDeterministicInts',
    'RngBitGenerator',
    'XlaRngBitGenerator',
    'RiscRandomUniform',
    'RandomCrop',
    'SampleDistortedBoundingBox',
    'SampleDistortedBoundingBoxV2',
    # Without state, and with draws all the same.
    'FractionalMaxPool',
    'FractionalAvgPool',
    'CudnnRNN',
    'CudnnRNNV2',
    'CudnnRNNV3',
    'RandomShuffleQueue',
    'RandomShuffleQueueV2',
    'SamplingDataset',
    'ExperimentalRandomDataset',
    'RandomDataset',
    'RandomDatasetV2',
    'ShuffleDataset',
    'ShuffleDatasetV2',
    'ShuffleDatasetV3',
    'ShuffleAndRepeatDataset',
    'ShuffleAndRepeatDatasetV2',
    'Timestamp',
    'PyFunc',
    'PyFuncStateless',
    'EagerPyFunc',
  ]
)


def keeps_state(graph: tf.Graph) -> bool:
  """Returns whether a run in a session may depend on earlier runs.

  Args:
    graph: A graph whose variables are initialized before each run.
  """
  graph_def = graph.as_graph_def()
  nodes = list(graph_def.node)
  in_functions = [
    node
    for function in graph_def.library.function
    for node in function.node_def
  ]
  if any(node.op in _KEPT for node in (*nodes, *in_functions)):
    return True
  if any(node.op in _TABLES for node in in_functions):
    return True
  if not any(node.op in _TABLES for node in nodes):
    return False
  fillers = [op for op in graph.get_operations() if op.type in _TABLE_FILLERS]
  return any(node.op in _TABLE_FILLERS for node in in_functions) or any(
    op.type == 'Placeholder' for op in ancestors(fillers)
  )


def draws(graph: tf.Graph, fetches: Sequence[str]) -> bool:
  """Returns whether the fetched tensors may differ from run to run.

  Args:
    graph: The graph.
    fetches: The names of tensors.
  """
  functions = {
    function.signature.name: function.node_def
    for function in graph.as_graph_def().library.function
  }
  ends = [graph.get_tensor_by_name(name).op for name in fetches]
  return any(
    node.op in _DRAWS
    for op in ancestors(ends)
    for node in _with_functions(op.node_def, functions, set())
  )


def ancestors(ends: list[tf.Operation]) -> Iterator[tf.Operation]:
  """Yields operations, and all operations that they need."""
  waiting, seen = list(ends), set(ends)
  while waiting:
    op = waiting.pop()
    yield op
    for other in (*(tensor.op for tensor in op.inputs), *op.control_inputs):
      if other not in seen:
        seen.add(other)
        waiting.append(other)


def _with_functions(
  node, functions: Mapping[str, list], seen: set[str]
) -> Iterator:
  """Yields a node, and those of all functions that it may call."""
  yield node
  for value in node.attr.values():
    for called in (value.func, *value.list.func):
      if called.name in functions and called.name not in seen:
        seen.add(called.name)
        for inner in functions[called.name]:
          yield from _with_functions(inner, functions, seen)
