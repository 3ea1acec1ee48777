"""Rounds of the theory are those of TFF processes on the same problem."""

import numpy as np
import pytest

from tff_clipping.theory import quadratics

pytest.importorskip('tensorflow_federated')

import tensorflow as tf  # noqa: E402

from tests.learning import linear_models  # noqa: E402
from tff_clipping import aggregators, learning, runtime  # noqa: E402

pytestmark = pytest.mark.slow


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
    list(rng.normal(size=(3, 4, 3))), list(2.0 * rng.normal(size=(3, 4)))
  )
  setting = dict(clipping_norm=0.2, local_steps=3, client_learning_rate=0.05)
  # A batch is all rows of a client, so that its gradients are exact.
  process = build(linear_models.model_fn, batch_size=4, **setting)
  # The model has the mean of four squares, and the theory half of their sum.
  scale = np.float32(2**0.5)
  datasets = [
    tf.data.Dataset.from_tensor_slices(
      dict(
        x=scale * matrix.astype(np.float32),
        y=scale * target.astype(np.float32)[:, np.newaxis],
      )
    )
    for matrix, target in zip(problem.matrices, problem.targets, strict=True)
  ]
  runtime.set_default_context()
  state, expected = process.initialize(), np.ones(3)
  for _ in range(20):
    state = process.next(state, datasets).state
    expected = step(problem, expected, **setting)
  (reached,) = process.get_model_weights(state).trainable
  np.testing.assert_allclose(reached[:, 0], expected, atol=1e-5)
