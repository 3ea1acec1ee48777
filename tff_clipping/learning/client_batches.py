"""The examples of a client, and the batch of each of its steps.

Plain TensorFlow functions, without TFF.
"""

import tensorflow as tf

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
  with tf.control_dependencies([] if check is None else [check]):
    # A batch of any size would go on, and on, after an element that fails.
    return dataset.batch(_BATCH).reduce(
      empty,
      lambda examples, batch: tf.nest.map_structure(
        lambda *leaves: tf.concat(leaves, axis=0), examples, batch
      ),
    )


def data_fingerprint(examples) -> tf.Tensor:
  """Returns an integer that differs between clients with other examples."""
  leaves = tf.nest.flatten(examples)
  hashes = [
    tf.strings.to_hash_bucket_fast(tf.io.serialize_tensor(leaf), 2**31 - 1)
    for leaf in leaves
  ]
  return tf.strings.to_hash_bucket_fast(
    tf.strings.join([tf.strings.as_string(h) for h in hashes], ','),
    2**31 - 1,
  )
