"""A model of padded sequences, whose loss does not count the padding."""

import numpy as np
from tff_clipping import learning, runtime
import tensorflow as tf
import tensorflow_federated as tff

_LENGTH, _NUM_TOKENS = 10, 30


class MaskedCrossEntropy(tf.keras.losses.Loss):
  """Cross-entropy of the tokens that are not padding."""

  def call(self, y_true, y_pred):
    # In a graph of TFF's, `y_true != 0` compares objects: it is always true.
    counts = tf.cast(tf.not_equal(y_true, 0), tf.float32)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y_true, y_pred)
    return tf.reduce_sum(losses * counts) / tf.maximum(tf.reduce_sum(counts), 1)


def _model_fn() -> tff.learning.models.VariableModel:
  tokens = tf.keras.Input((_LENGTH,), dtype=tf.int32)
  hidden = tf.keras.layers.Embedding(_NUM_TOKENS, 8, mask_zero=True)(tokens)
  hidden = tf.keras.layers.GRU(16, return_sequences=True)(hidden)
  spec = tf.TensorSpec([None, _LENGTH], tf.int32)
  return tff.learning.models.from_keras_model(
    tf.keras.Model(tokens, tf.keras.layers.Dense(_NUM_TOKENS)(hidden)),
    loss=MaskedCrossEntropy(),
    input_spec={'x': spec, 'y': spec},
  )


def _client(seed: int) -> tf.data.Dataset:
  """Sequences of 4 to 10 tokens, each the one before plus 1."""
  rng = np.random.default_rng(seed)
  rows = np.zeros([20, _LENGTH + 1], np.int32)
  for row in rows:
    size = rng.integers(5, _LENGTH + 2)
    row[:size] = 1 + (rng.integers(29) + np.arange(size)) % 29
  return tf.data.Dataset.from_tensor_slices(
    {'x': rows[:, :-1], 'y': rows[:, 1:]}
  )


def main() -> None:
  runtime.set_default_context()
  process = learning.build_fed_avg(
    _model_fn, local_steps=8, batch_size=20, client_learning_rate=2.0
  )
  state = process.initialize()
  clients = [_client(seed) for seed in range(4)]
  for _ in range(20):
    state = process.next(state, clients).state

  evaluation = tff.learning.algorithms.build_fed_eval(_model_fn)
  eval_state = evaluation.set_model_weights(
    evaluation.initialize(), process.get_model_weights(state)
  )
  metrics = evaluation.next(eval_state, [_client(4).batch(20)]).metrics
  found = metrics['client_work']['eval']['current_round_metrics']['loss']
  print(f'loss {found:.2f}, of guesses {np.log(_NUM_TOKENS - 1):.2f}')


if __name__ == '__main__':
  main()
