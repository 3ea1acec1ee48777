"""Chooses c and the server's learning rate by private runs, and counts them.

Each try is a run on the clients' data, so it costs privacy, whether its model
is kept or not. The number of tries, their rounds and their noise are settled
before the first: all rounds, of the tries and of the last run, are one plan,
whose noise multiplier each run has.

  python -m examples.tuning.tune mine.npz mine.py:create_model runs/tuning

The files are those of docs/your_own.md, or yours.
"""

import itertools
import pathlib
import sys

# Before TensorFlow: makes it quiet.
from tasks import own_run  # noqa: I001
from tff_clipping import privacy

import numpy as np
import pandas as pd

TARGET_EPSILON, TARGET_DELTA = 8.0, 1e-2
CLIPPING_NORMS = (0.1, 0.4)
SERVER_LEARNING_RATES = (0.5, 1.0)
TRY_ROUNDS, LAST_ROUNDS = 5, 20
CLIENTS_PER_ROUND = 10


def find_noise_multiplier(num_clients: int, num_tries: int) -> float:
  """Returns z, with which all rounds together have the target epsilon."""
  return privacy.PrivacyPlan.from_target_epsilon(
    num_clients=num_clients,
    clients_per_round=CLIENTS_PER_ROUND,
    num_rounds=num_tries * TRY_ROUNDS + LAST_ROUNDS,
    target_epsilon=TARGET_EPSILON,
    target_delta=TARGET_DELTA,
    sampling='poisson',
  ).noise_multiplier


def train(task, model, folder, clipping_norm, rate, **settings) -> float:
  """Trains privately; returns the accuracy, on a test set that is nobody's."""
  result = own_run.train(
    task=task,
    model=model,
    output_dir=folder,
    cache_dir=str(folder.parent / 'cache'),
    algorithm='dp_fed_avg',
    clipping_norm=clipping_norm,
    server_learning_rate=rate,
    target_delta=TARGET_DELTA,
    sampling='poisson',
    clients_per_round=CLIENTS_PER_ROUND,
    local_steps=4,
    batch_size=10,
    client_learning_rate=0.1,
    **settings,
  )
  if result.interrupted is not None:  # The same command continues.
    raise SystemExit(result.interrupted.exit_code)
  metrics = pd.read_csv(folder / 'metrics.csv')
  return metrics['test_accuracy'].iloc[-1]


def main(task: str, model: str, output_dir: str) -> None:
  """Tries all settings, trains with the best, and says what it has cost.

  Args:
    task: A .npz file, as `--task` takes it.
    model: As `--model` takes it.
    output_dir: The folder of the runs.
  """
  folder = pathlib.Path(output_dir)
  tries = list(itertools.product(CLIPPING_NORMS, SERVER_LEARNING_RATES))
  with np.load(task) as data:
    num_clients = len(np.unique(data['client']))
  noise = find_noise_multiplier(num_clients, len(tries))
  paths = [folder / f'c={c}_rate={rate}' for c, rate in tries]
  found = [
    train(
      *(task, model, path, c, rate),
      noise_multiplier=noise,
      num_rounds=TRY_ROUNDS,
    )
    for path, (c, rate) in zip(paths, tries, strict=True)
  ]
  c, rate = tries[int(np.argmax(found))]
  paths.append(folder / 'last')
  accuracy = train(
    *(task, model, paths[-1], c, rate),
    noise_multiplier=noise,
    num_rounds=LAST_ROUNDS,
  )
  ledgers = [privacy.read_ledger(path / 'ledger.jsonl') for path in paths]
  alone = ledgers[-1].epsilon
  together = privacy.compute_spending(ledgers).epsilon
  print(f'c = {c}, server learning rate {rate}: accuracy {accuracy:.0%}')
  print(f'the last run alone would be epsilon {alone:.2f}')
  print(f'with the {len(tries)} tries it is {together:.2f}')


if __name__ == '__main__':
  main(*sys.argv[1:])
