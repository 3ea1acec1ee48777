"""One client's local steps, in a graph of their own, for the tests here."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import linear_models
from tff_clipping.learning import client_batches, steps
from tff_clipping.learning.local_work import LocalWork

LOCAL_STEPS = 4
BATCH_SIZE = 2
RATE = 0.05
WORK = dict(
  local_steps=LOCAL_STEPS, batch_size=BATCH_SIZE, client_learning_rate=RATE
)
SEED = (3, 11)
CLIENT = 2
START = np.array([1.0, -2.0, 0.5])


def train(
  model_fn: Callable[[], tff.learning.models.VariableModel],
  examples,
  start: Sequence[np.ndarray],
  step: steps.LocalStep,
  *,
  seed=SEED,
  round_num: int = 0,
  kept=(),
  runs: int = 1,
  **changes,
) -> list[np.ndarray]:
  """Returns a client's update, which several runs of one session must give."""
  work = LocalWork(model_fn=model_fn, local_step=step, **WORK | changes)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    model = model_fn()
    update = work.train(
      model,
      tff.learning.models.ModelWeights(
        [tf.constant(value, tf.float32) for value in start], []
      ),
      tf.nest.map_structure(tf.constant, examples),
      seed=tf.constant(seed),
      round_num=tf.constant(round_num),
      kept=tf.nest.map_structure(tf.constant, kept),
    )
    initialize(session, model)
    found = [session.run(update) for _ in range(runs)]
  for other in found[1:]:
    for a, b in zip(found[0], other, strict=True):
      np.testing.assert_array_equal(a, b)
  return found[0]


def initialize(session, model: tff.learning.models.VariableModel) -> None:
  """Gives all variables of a model their first values."""
  for variable in (*model.trainable_variables, *model.local_variables):
    session.run(variable.initializer)


def train_linear(step: steps.LocalStep, **settings) -> np.ndarray:
  """Returns the update of the linear regression from `START`, [d]."""
  examples = linear_models.examples(linear_models.PARTITION[CLIENT])
  start = [START.reshape(-1, 1)]
  (update,) = train(linear_models.model_fn, examples, start, step, **settings)
  return update[:, 0]


def descend(
  direction: Callable[[np.ndarray, np.ndarray, int], np.ndarray],
  *,
  start: np.ndarray = START,
  rows: np.ndarray = linear_models.PARTITION[CLIENT],
  local_steps: int = LOCAL_STEPS,
  batch_size: int = BATCH_SIZE,
  client_learning_rate: float = RATE,
  seed=SEED,
) -> np.ndarray:
  """Returns the update of steps in NumPy, in float64.

  The direction is a function of the model, the rows of the batch and the number
  of the step.
  """
  batches = client_batches.batch_indices(
    tf.constant(len(rows)), local_steps, batch_size, tf.constant(seed)
  )
  x = start
  for step, batch in enumerate(batches.numpy()):
    x = x - client_learning_rate * direction(x, rows[batch], step)
  return x - start


def sgd(x: np.ndarray, rows: np.ndarray, step: int) -> np.ndarray:
  """Returns the direction of plain SGD, for `descend`."""
  return linear_models.gradient(x, rows)


def client_seed(seed: int, round_num: int, client_id: str) -> tuple[int, int]:
  """Returns the seed of a client in a round of a process."""
  one, two = client_batches.client_seed(
    seed, tf.constant(round_num), tf.constant(client_id)
  )
  return int(one), int(two)
