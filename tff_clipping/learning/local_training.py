"""What a client does in a round: Q local SGD steps of full batches.

Plain TensorFlow functions, without TFF.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf
import tensorflow_federated as tff

# Of the examples of a data set that are read at once.
_BATCH = 1024


def client_seed(
  run_seed: int, round_num: tf.Tensor, client_id: tf.Tensor
) -> tf.Tensor:
  """Returns the stateless seed of one client in one round of one run.

  Equal arguments give equal seeds, on any machine and in any process; a
  different run, round or client gives an unrelated one.

  Args:
    run_seed: The seed of the run, an integer.
    round_num: The number of the round, an integer scalar.
    client_id: The client's id, a string scalar, or anything else that tells the
      client from the others as an integer scalar.

  Returns:
    An `int32` tensor of shape `[2]`.
  """
  if client_id.dtype == tf.string:
    client_id = tf.strings.to_hash_bucket_fast(client_id, 2**31 - 1)
  seed = tf.constant([run_seed >> 31 & 0x7FFFFFFF, run_seed & 0x7FFFFFFF])
  for data in (round_num, client_id):
    seed = tf.random.experimental.stateless_fold_in(seed, data)
  return seed


def batch_indices(
  num_examples: tf.Tensor, num_steps: int, batch_size: int, seed: tf.Tensor
) -> tf.Tensor:
  """Returns which examples make up the batch of each step.

  The examples are shuffled anew for every pass over them, and the passes follow
  each other without a gap: every batch is full, a batch may hold the end of one
  pass and the start of the next, and a client with fewer than `batch_size`
  examples repeats them.

  Args:
    num_examples: The client's number of examples, at least 1, integer scalar.
    num_steps: The number of steps, Q.
    batch_size: The number of examples in a batch.
    seed: The stateless seed, shape `[2]`.

  Returns:
    An `int32` tensor of shape `[num_steps, batch_size]`.
  """
  total = num_steps * batch_size
  num_passes = (total + num_examples - 1) // num_examples
  keys = tf.random.stateless_uniform(
    tf.stack([num_passes, num_examples]), seed, None, None, tf.int32
  )
  shuffled = tf.reshape(tf.argsort(keys, axis=1), [-1])
  return tf.reshape(shuffled[:total], [num_steps, batch_size])


def build_local_sgd(
  model: tff.learning.models.VariableModel,
  *,
  local_steps: int,
  batch_size: int,
  learning_rate: float,
) -> Callable[..., Sequence[tf.Tensor]]:
  """Returns a function that makes a client's update.

  Source: Alg. 1 (FedAvg), lines 4-9: the local steps
  `x_i^{t,q+1} = x_i^{t,q} - eta_l g_i^{t,q}` for `q = 0, ..., Q-1`, and the
  update `x_i^{t,Q} - x^t`.

  Args:
    model: The model. Its trainable variables hold `x_i^{t,q}`, in place. Where
      it has `has_linear_loss`, a function of the examples, and that is true,
      one step that is Q times as long takes the place of the Q steps, which
      would all have its gradient.
    local_steps: The number of steps, Q.
    batch_size: The number of examples in every batch.
    learning_rate: The local step size, eta_l.

  Returns:
    A function of the global model (a list of tensors), the client's examples (a
    structure of tensors with a leading dimension of examples) and the client's
    seed (shape `[2]`), that returns the update (a list of tensors). A client
    without examples has an update of zeros. In a graph only what the update
    depends on runs, and so not the model's metrics.
  """
  variables = model.trainable_variables

  # Not a `tf.function`, which would run everything that changes a variable, the
  # metrics as well. So the order of reads and writes is given here.
  def local_sgd(global_model, examples, seed):
    leaves = tf.nest.flatten(examples)
    num_examples = tf.shape(leaves[0])[0]
    indices = batch_indices(
      tf.maximum(num_examples, 1), local_steps, batch_size, seed
    )
    num_steps = tf.where(num_examples > 0, local_steps, 0)
    step_size = learning_rate
    if hasattr(model, 'has_linear_loss'):
      is_linear = (num_examples > 0) & model.has_linear_loss(examples)
      num_steps = tf.where(is_linear, 1, num_steps)
      step_size = tf.where(is_linear, local_steps * step_size, step_size)

    def take_step(step):
      with _after([step]):
        # In fewer operations than a slice.
        rows = tf.gather(indices, step)
        batch = [tf.gather(leaf, rows) for leaf in leaves]
        batch = tf.nest.pack_sequence_as(model.input_spec, batch)
        with tf.GradientTape() as tape:
          loss = model.forward_pass(batch, training=True).loss
        gradients = tape.gradient(loss, variables)
        taken = [
          _descend(variable, gradient, step_size)
          for variable, gradient in zip(variables, gradients, strict=True)
          if gradient is not None
        ]
      with _after(taken):
        return [step + 1]

    started = [
      variable.assign(value, read_value=False)
      for variable, value in zip(variables, global_model, strict=True)
    ]
    with _after(started):
      first = tf.identity(0)
    (done,) = tf.while_loop(lambda step: step < num_steps, take_step, [first])
    with _after([done]):
      return [
        variable.read_value() - value
        for variable, value in zip(variables, global_model, strict=True)
      ]

  return local_sgd


def dataset_examples(dataset: tf.data.Dataset):
  """Returns all examples of a data set of single examples, stacked.

  In a graph, one that never ends is an error.
  """
  empty = tf.nest.map_structure(
    lambda spec: tf.zeros([0] + spec.shape.as_list(), spec.dtype),
    dataset.element_spec,
  )
  check = tf.debugging.assert_none_equal(
    dataset.cardinality(),
    tf.constant(tf.data.INFINITE_CARDINALITY, tf.int64),
    message='The data set of a client never ends: leave out `repeat`, or say '
    'how often.',
  )
  with _after([check]):
    # A batch of any size would go on, and on, after an element that fails.
    return dataset.batch(_BATCH).reduce(
      empty,
      lambda examples, batch: tf.nest.map_structure(
        lambda *leaves: tf.concat(leaves, axis=0), examples, batch
      ),
    )


def data_fingerprint(examples) -> tf.Tensor:
  """Returns an integer that tells a client's examples from another's."""
  leaves = tf.nest.flatten(examples)
  hashes = [
    tf.strings.to_hash_bucket_fast(tf.io.serialize_tensor(leaf), 2**31 - 1)
    for leaf in leaves
  ]
  return tf.strings.to_hash_bucket_fast(
    tf.strings.join([tf.strings.as_string(h) for h in hashes], ','),
    2**31 - 1,
  )


def _after(operations: Sequence):
  """Returns a context whose operations run after `operations`."""
  return tf.control_dependencies([op for op in operations if op is not None])


def _descend(variable: tf.Variable, gradient, step_size: float | tf.Tensor):
  """Returns the operation that moves `variable` against `gradient`."""
  if isinstance(gradient, tf.IndexedSlices):
    gradient = tf.convert_to_tensor(gradient)
  return tf.raw_ops.ResourceApplyGradientDescent(
    var=variable.handle,
    alpha=tf.cast(step_size, variable.dtype),
    delta=gradient,
  )
