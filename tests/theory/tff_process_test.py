"""Rounds of the theory are those of TFF processes on the same problem."""

import collections

import numpy as np
import pytest

from tff_clipping.theory import quadratics

pytest.importorskip('tensorflow_federated')

import tensorflow as tf  # noqa: E402
import tensorflow_federated as tff  # noqa: E402

from tff_clipping import aggregators, learning, runtime  # noqa: E402

pytestmark = pytest.mark.slow


class _Quadratic(tf.keras.Model):
  """x ↦ Σ_j features_j x_j, with the parameters x."""

  def __init__(self, dimension: int):
    super().__init__()
    self.x = self.add_weight(
      name='x', shape=(dimension,), initializer='ones', dtype=tf.float32
    )

  def call(self, features):
    return tf.linalg.matvec(features, self.x)


class _SumOfSquares(tf.keras.losses.Loss):
  """1/2 ||prediction − target||², a mean over the one example of a batch."""

  def call(self, target, prediction):
    return 0.5 * tf.reduce_sum(tf.square(prediction - target), axis=-1)


@pytest.mark.parametrize(
  ('build', 'step'),
  [
    (
      lambda model_fn, clipping_norm, **settings: learning.build_fed_avg(
        model_fn,
        model_aggregator=aggregators.clipped_mean_factory(
          clipping_norm=clipping_norm
        ),
        **settings,
      ),
      quadratics.difference_clipping_step,
    ),
    (
      learning.build_model_clipping_fed_avg,
      quadratics.model_clipping_step,
    ),
  ],
)
def test_rounds_of_a_tff_process_are_those_of_the_theory(build, step):
  rng = np.random.default_rng(0)
  problem = quadratics.LinearRegression(
    list(rng.normal(size=(3, 3, 2))), list(2.0 * rng.normal(size=(3, 3)))
  )
  spec = collections.OrderedDict(
    x=tf.TensorSpec((None, 3, 2)), y=tf.TensorSpec((None, 3))
  )

  def model_fn():
    return tff.learning.models.from_keras_model(
      _Quadratic(2), loss=_SumOfSquares(), input_spec=spec
    )

  setting = dict(clipping_norm=0.2, local_steps=3, client_learning_rate=0.05)
  process = build(model_fn, batch_size=1, **setting)
  # A client has one example, all of its rows, so that its gradients are exact.
  datasets = [
    tf.data.Dataset.from_tensors(
      dict(x=matrix.astype(np.float32), y=target.astype(np.float32))
    )
    for matrix, target in zip(problem.matrices, problem.targets, strict=True)
  ]
  runtime.set_default_context()
  state, expected = process.initialize(), np.ones(2)
  for _ in range(20):
    state = process.next(state, datasets).state
    expected = step(problem, expected, **setting)
  (reached,) = process.get_model_weights(state).trainable
  np.testing.assert_allclose(reached, expected, atol=1e-5)
