"""Turns reductions of data sets into loops in the same graph.

In TFF's own client work a client trains by reducing its data set with a
function. TensorFlow's operation for a reduction, `ReduceDataset`, optimises and
compiles the function anew in each call, which takes 40 ms for a small model,
however few the examples. In a loop the function is compiled once, with the
graph.
"""

import tensorflow as tf
from tensorflow.core.framework import (
  attr_value_pb2,
  function_pb2,
  graph_pb2,
  node_def_pb2,
)

_REDUCTION = 'ReduceDataset'
_CALL = 'StatefulPartitionedCall'


def replace_reductions(graph_def: graph_pb2.GraphDef) -> None:
  """Replaces each reduction of a data set in a graph by a loop, in place.

  The elements, their order and the result are the same.

  Args:
    graph_def: The graph, with the functions that it calls.
  """
  functions = {f.signature.name: f for f in graph_def.library.function}
  for node in graph_def.node:
    if node.op == _REDUCTION:
      _replace(node, graph_def, functions)
  for function in [*functions.values()]:
    replaced = [node for node in function.node_def if node.op == _REDUCTION]
    for node in replaced:
      _replace(node, graph_def, functions)
    if replaced:
      _rename_results(function, {node.name for node in replaced})


def _replace(
  node: node_def_pb2.NodeDef,
  graph_def: graph_pb2.GraphDef,
  functions: dict[str, function_pb2.FunctionDef],
) -> None:
  """Makes a reduction a call of a loop, which goes into the library."""
  state_types = node.attr['Tstate'].list.type
  captured_types = node.attr['Targuments'].list.type
  reduced = functions[node.attr['f'].func.name]
  types = [arg.type for arg in reduced.signature.input_arg]
  element_types = types[len(state_types) : len(types) - len(captured_types)]
  name, library = _build_loop(
    node.attr['f'].func,
    [tf.as_dtype(t) for t in state_types],
    [tf.as_dtype(t) for t in element_types],
    [tf.as_dtype(t) for t in captured_types],
    graph_def,
  )
  for function in library:
    if function.signature.name not in functions:
      functions[function.signature.name] = function
      graph_def.library.function.append(function)
  results = node.attr['output_types']
  call = node_def_pb2.NodeDef(
    name=node.name, op=_CALL, input=node.input, device=node.device
  )
  call.attr['Tin'].list.type.extend(
    [tf.variant.as_datatype_enum, *state_types, *captured_types]
  )
  call.attr['Tout'].CopyFrom(results)
  call.attr['f'].func.name = name
  node.CopyFrom(call)


def _build_loop(
  step: attr_value_pb2.NameAttrList,
  state_types: list[tf.DType],
  element_types: list[tf.DType],
  captured_types: list[tf.DType],
  graph_def: graph_pb2.GraphDef,
) -> tuple[str, list[function_pb2.FunctionDef]]:
  """Returns the name of a loop over a data set, and all functions it needs.

  Both the loop and its step, of the state, an element and the captured tensors,
  return the state.
  """
  unknown = [tf.TensorShape(None)] * len(element_types)
  end = 1 + len(state_types)

  @tf.function
  def reduce_by_loop(*inputs):
    data_set, state, captured = inputs[0], inputs[1:end], inputs[end:]
    iterator = tf.raw_ops.AnonymousIteratorV3(
      output_types=element_types, output_shapes=unknown
    )
    ready = tf.raw_ops.MakeIterator(dataset=data_set, iterator=iterator)

    def next_element():
      return tf.raw_ops.IteratorGetNextAsOptional(
        iterator=iterator, output_types=element_types, output_shapes=unknown
      )

    def take_step(element, *state):
      values = tf.raw_ops.OptionalGetValue(
        optional=element, output_types=element_types, output_shapes=unknown
      )
      state = tf.raw_ops.StatefulPartitionedCall(
        args=[*state, *values, *captured], Tout=state_types, f=step
      )
      # A step may change variables that the next one reads: that need not be
      # seen in the state.
      with tf.control_dependencies([state[0].op]):
        return [next_element(), *map(tf.identity, state)]

    with tf.control_dependencies([ready]):
      first = next_element()
    _, *state = tf.while_loop(
      lambda element, *_: tf.raw_ops.OptionalHasValue(optional=element),
      take_step,
      [first, *state],
      parallel_iterations=1,
    )
    return state

  graph = tf.Graph()
  with graph.as_default():
    tf.graph_util.import_graph_def(
      graph_pb2.GraphDef(
        library=graph_def.library, versions=graph_def.versions
      ),
      name='',
    )
    reduce_by_loop(
      *[
        tf.compat.v1.placeholder(dtype)
        for dtype in (tf.variant, *state_types, *captured_types)
      ]
    )
  built = graph.as_graph_def()
  (call,) = [node for node in built.node if 'f' in node.attr]
  return call.attr['f'].func.name, list(built.library.function)


def _rename_results(
  function: function_pb2.FunctionDef, names: set[str]
) -> None:
  """Renames 'components', the results of a reduction, to 'output' of a call."""

  def rename(result: str) -> str:
    operation, _, rest = result.partition(':')
    if operation not in names:
      return result
    return f'{operation}:{rest.replace("components", "output")}'

  for node in function.node_def:
    for place, each in enumerate(node.input):
      node.input[place] = rename(each)
  for key in function.ret:
    function.ret[key] = rename(function.ret[key])
