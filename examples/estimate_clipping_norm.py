"""Two private runs: a short one finds the clipping norm of the other.

The first run trains for 10 rounds with adaptive clipping. Its last clipping
norm, a quantile of the norms of updates that is computed from noised bits, is
the constant norm of the second run, which goes on from the model of the first.

The promise, to each client: whoever sees all models of both runs and the
clipping norms learns no more about the client than the epsilon of both ledgers
together allows, for adding or removing the client. That needs two things. Both
plans are settled before the first run: the second run takes nothing from the
first but its norm and its model, which were released. And each run draws its
cohorts by a seed of its own, which stays secret: with one seed the second run
would look at the cohorts of the first again, which costs more.

Not promised: anything against the server, which sees each update.

The same command goes on after it was stopped, and then charges nothing twice.
"""

import csv
import pathlib
import secrets

import numpy as np
from tff_clipping import aggregators, learning, privacy, programs, runtime
import tensorflow as tf
import tensorflow_federated as tff

_NUM_CLIENTS = 1000
_FIRST = dict(target_epsilon=1.0, num_rounds=10)
_SECOND = dict(target_epsilon=4.0, num_rounds=20)
_COHORTS = dict(
  num_clients=_NUM_CLIENTS, clients_per_round=100, target_delta=1e-5
)
_WORK = dict(local_steps=4, batch_size=8, client_learning_rate=0.5)
# A rough guess: the norm follows from there.
_INITIAL_NORM = 1.0


def write_clients(folder: pathlib.Path):
  """Writes 1000 clients of 8 points each, of two classes."""
  rng = np.random.default_rng(0)
  x = rng.normal(size=[8 * _NUM_CLIENTS, 4]).astype(np.float32)
  y = (x.sum(axis=1) > 0).astype(np.int32)
  return programs.write_client_store(
    folder, 'points', {'x': x, 'y': y}, np.split(np.arange(len(x)), 1000)
  )


def model_fn() -> tff.learning.models.VariableModel:
  """Returns a new linear classifier."""
  inputs = tf.keras.Input((4,))
  return tff.learning.models.from_keras_model(
    tf.keras.Model(inputs, tf.keras.layers.Dense(2)(inputs)),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec={
      'x': tf.TensorSpec([None, 4]),
      'y': tf.TensorSpec([None], tf.int32),
    },
  )


def read_or_draw_seed(folder: pathlib.Path) -> int:
  """Returns the seed of a run's cohorts, which its owner alone may read."""
  path = folder / 'sampling_seed'
  if not (folder / 'ledger.jsonl').exists():  # The run is to begin.
    path.touch(mode=0o600)
    path.write_text(str(secrets.randbits(128)))
  return int(path.read_text())


def run(folder: pathlib.Path, store, budget, build_mean, initial_weights=None):
  """Runs a private run, or what is left of it.

  Args:
    folder: Where the run is kept, with a ledger and a seed of its own.
    store: The clients.
    budget: The epsilon and the rounds of its plan.
    build_mean: Returns the mean with the plan's noise.
    initial_weights: What the model begins with; None for a new model.

  Returns:
    The weights after the last round, and the clipping norm of that round.
  """
  folder.mkdir(mode=0o700, exist_ok=True)
  settings = {**_COHORTS, **budget}
  plan = privacy.read_plan(folder, **settings)
  if plan is None:
    plan = privacy.PrivacyPlan.from_target_epsilon(**settings)
  process = learning.build_fed_avg(
    model_fn,
    **_WORK,
    model_aggregator=build_mean(**plan.aggregator_parameters._asdict()),
    client_store=store,
  )
  seed = read_or_draw_seed(folder)
  with privacy.PrivacyLedger(folder / 'ledger.jsonl', plan) as ledger:
    result = programs.TrainingProgram(
      process=process,
      sampler=programs.build_private_sampler(plan, store.client_ids, seed=seed),
      num_rounds=plan.num_rounds,
      evaluate=None,
      checkpoints=programs.Checkpoints(folder / 'checkpoints'),
      watchers=[programs.MetricsFiles(folder / 'metrics.csv')],
      ledger=ledger,
      initial_weights=initial_weights,
    ).run()
  if result.interrupted is not None:
    raise SystemExit(result.interrupted.exit_code)
  with open(folder / 'metrics.csv') as file:
    *_, last = csv.DictReader(file)
  weights = process.get_model_weights(result.state)
  return weights, float(last['aggregator/clipping_norm'])


def main(run_dir: pathlib.Path) -> None:
  """Runs both, and says what both cost together.

  Args:
    run_dir: The folder of both runs.
  """
  run_dir.mkdir(mode=0o700, exist_ok=True)
  runtime.set_default_context()
  store = write_clients(run_dir)
  first, second = run_dir / 'first', run_dir / 'second'
  weights, norm = run(
    *(first, store, _FIRST),
    lambda **noise: aggregators.adaptive_dp_mean_factory(
      initial_clipping_norm=_INITIAL_NORM, **noise
    ),
  )
  print(f'clipping norm {norm:.3g}')
  run(
    *(second, store, _SECOND),
    lambda **noise: aggregators.dp_mean_factory(clipping_norm=norm, **noise),
    weights,
  )
  ledgers = [privacy.read_ledger(folder) for folder in (first, second)]
  alone = ' and '.join(f'{ledger.epsilon:.2f}' for ledger in ledgers)
  spent = privacy.compute_spending(ledgers)
  print(f'epsilon {alone} alone, {spent.epsilon:.2f} together')


if __name__ == '__main__':
  main(pathlib.Path('estimate_clipping_norm'))
