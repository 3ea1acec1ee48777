"""The quadratic problems as TFF processes come to rest at the same points."""

import collections
import math

import numpy as np
import pytest

from tff_clipping.theory import claims, quadratics

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


def _model_after_rounds(
  problem: quadratics.LinearRegression,
  *,
  clipping_norm: float,
  local_steps: int,
  client_learning_rate: float,
  num_rounds: int,
  clip_models: bool = False,
) -> np.ndarray:
  """The model after some rounds of a TFF process, from a model of ones.

  A client has one example, all of its rows, so that its gradients are exact.
  """
  runtime.set_default_context()
  rows = len(problem.targets[0])
  spec = collections.OrderedDict(
    x=tf.TensorSpec((None, rows, problem.dimension), tf.float32),
    y=tf.TensorSpec((None, rows), tf.float32),
  )

  def model_fn():
    return tff.learning.models.from_keras_model(
      _Quadratic(problem.dimension), loss=_SumOfSquares(), input_spec=spec
    )

  settings = {
    'local_steps': local_steps,
    'batch_size': 1,
    'client_learning_rate': client_learning_rate,
    'server_learning_rate': 1.0,
  }
  if clip_models:
    process = learning.build_model_clipping_fed_avg(
      model_fn, clipping_norm=clipping_norm, **settings
    )
  else:
    aggregator = None
    if math.isfinite(clipping_norm):
      aggregator = aggregators.clipped_mean_factory(clipping_norm=clipping_norm)
    process = learning.build_fed_avg(
      model_fn, model_aggregator=aggregator, **settings
    )
  datasets = [
    tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(
        x=matrix[None].astype(np.float32), y=target[None].astype(np.float32)
      )
    )
    for matrix, target in zip(problem.matrices, problem.targets, strict=True)
  ]
  state = process.initialize()
  for _ in range(num_rounds):
    state = process.next(state, datasets).state
  return np.asarray(process.get_model_weights(state).trainable[0])


@pytest.mark.parametrize(
  ('clipping_norm', 'local_steps', 'rate', 'expected'),
  [
    # 400 steps of 1/36 leave (35/36)^400 = 1.3e-5 of the way.
    (math.inf, 400, 1 / 36, 13 / 9),
    (1.0, 400, 1 / 36, 2 / 3),
  ],
)
def test_table_1_as_a_tff_process(clipping_norm, local_steps, rate, expected):
  reached = _model_after_rounds(
    claims.TABLE_1_CLIENTS.to_linear_regression(),
    clipping_norm=clipping_norm,
    local_steps=local_steps,
    client_learning_rate=rate,
    # Each contracts at least by 2/3 a round: (2/3)^30 = 5e-6.
    num_rounds=30,
  )
  assert float(reached[0]) == pytest.approx(expected, abs=1e-4)


def test_two_dimensions_as_a_tff_process():
  rng = np.random.default_rng(0)
  problem = quadratics.LinearRegression(
    list(rng.normal(size=(3, 3, 2))), list(2.0 * rng.normal(size=(3, 3)))
  )
  setting = {
    'clipping_norm': 0.2,
    'local_steps': 3,
    'client_learning_rate': 0.05,
  }
  expected = np.ones(2)
  for _ in range(20):
    expected = quadratics.difference_clipping_step(problem, expected, **setting)
  reached = _model_after_rounds(problem, num_rounds=20, **setting)
  np.testing.assert_allclose(reached, expected, atol=1e-5)


def test_claim_2_1_as_a_tff_process():
  # λ = (1 − 1/4)² = 9/16, so λc/(3 − 2λ) = (9/8)/(15/8); x* is 8/3.
  reached = _model_after_rounds(
    claims.claim_2_1_clients(2.0, 5.0).to_linear_regression(),
    clipping_norm=2.0,
    local_steps=2,
    client_learning_rate=0.25,
    # Each contracts by 9/16: 0.5625^25 = 6e-7.
    num_rounds=25,
    clip_models=True,
  )
  assert float(reached[0]) == pytest.approx(3 / 5, abs=1e-5)
  assert claims.claim_2_1_fixed_point(2.0, 5.0, 9 / 16) == pytest.approx(3 / 5)
