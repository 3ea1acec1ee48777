"""Which variables a step of training would change that it does not train.

A model may have variables that training leaves as they are, those of frozen
layers. Whether it does is seen in the graph of a step: what a step writes is
written by an operation that gets the variable.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import tensorflow as tf
import tensorflow_federated as tff

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


def changed_by_a_step(
  model_fn: Callable[[], tff.learning.models.VariableModel],
) -> list[str]:
  """Returns the names of the untrained variables that a step may change.

  The pass forward in training mode and the gradient are traced, and not run. An
  operation that is not known to read only is taken for one that writes.

  Args:
    model_fn: Returns a new model, whose inputs are dense tensors.
  """
  with tf.Graph().as_default() as graph:
    model = model_fn()
    # Among them are those that give the variables their first values.
    before = {op.name for op in graph.get_operations()}
    batch = tf.nest.map_structure(
      lambda spec: tf.compat.v1.placeholder(spec.dtype, spec.shape),
      model.input_spec,
    )
    with tf.GradientTape() as tape:
      loss = model.forward_pass(batch, training=True).loss
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
