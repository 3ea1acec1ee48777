"""The complete DP-FedAvg round: ours through the training program, and stock.

  python -m benchmarks.federated ours mlp
  python -m benchmarks.federated stock mlp

Each prints the seconds of every round as JSON, and is a program of its own,
since TFF's native context leaves a worker behind, which this ends.
"""

import json
import os
import pathlib
import signal
import sys
import tempfile
import time
from collections.abc import Callable

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

# ruff: noqa: E402
import tensorflow_federated as tff

from benchmarks.workload import WORKLOADS, Workload
from tasks import keras_models
from tff_clipping import aggregators, learning, privacy, runtime
from tff_clipping.programs import client_sampling, client_store
from tff_clipping.programs.checkpoints import Checkpoints
from tff_clipping.programs.training import StopReason, TrainingProgram

_CLIPPING_NORM = 0.5
_LEARNING_RATE = 1e-6


def main(mode: str, name: str) -> None:
  """Prints the seconds of each round."""
  workload = WORKLOADS[name]
  with tempfile.TemporaryDirectory() as folder:
    run = {'ours': _run_ours, 'stock': _run_stock}[mode]
    print(json.dumps(run(workload, pathlib.Path(folder))), flush=True)


def _run_ours(workload: Workload, folder: pathlib.Path) -> list[float]:
  """Everything that a private run does: sampler, ledger, metrics and files."""
  store = client_store.write_client_store(
    folder, 'bench', workload.examples(), workload.partition()
  )
  num_rounds = workload.num_rounds + 2
  # All clients take part in each round, so that each round is the same work;
  # the accounting is that of a larger population.
  plan = privacy.PrivacyPlan.from_noise_multiplier(
    num_clients=24 * workload.clients_per_round,
    clients_per_round=workload.clients_per_round,
    num_rounds=num_rounds,
    noise_multiplier=1.5,
    target_delta=1e-5,
  )
  runtime.set_default_context()
  process = learning.build_fed_avg(
    _model_fn(workload, store),
    local_steps=workload.local_steps,
    batch_size=workload.batch_size,
    client_learning_rate=_LEARNING_RATE,
    client_store=store,
    model_aggregator=aggregators.dp_mean_factory(
      clipping_norm=_CLIPPING_NORM, **plan.aggregator_parameters._asdict()
    ),
  )
  ends = []
  with privacy.PrivacyLedger(folder / 'ledger.jsonl', plan) as ledger:
    result = TrainingProgram(
      process=process,
      sampler=client_sampling.FixedSizeSampler(
        store.client_ids, clients_per_round=workload.clients_per_round, seed=0
      ),
      num_rounds=num_rounds,
      evaluate=lambda weights: dict(test_accuracy=0.0, test_loss=0.0),
      rounds_per_evaluation=num_rounds,
      checkpoints=Checkpoints(folder / 'checkpoints', keep=1),
      rounds_per_checkpoint=num_rounds,
      release_managers=[
        tff.program.CSVFileReleaseManager(
          str(folder / 'metrics.csv'),
          save_mode=tff.program.CSVSaveMode.WRITE,
          key_fieldname='round_num',
        )
      ],
      ledger=ledger,
      on_round=lambda metrics: ends.append(time.monotonic()),
    ).run()
  if result.reason is not StopReason.FINISHED:
    raise RuntimeError(result.message)
  # From the end of a round to the end of the next: nothing is left out.
  return [b - a for a, b in zip(ends[1:-1], ends[2:], strict=True)]


def _run_stock(workload: Workload, folder: pathlib.Path) -> list[float]:
  """TFF's own algorithm with its own Gaussian aggregator and context."""
  store = client_store.write_client_store(
    folder, 'bench', workload.examples(), workload.partition()
  )
  total = workload.local_steps * workload.batch_size
  datasets = [
    store.create_dataset(client_id)
    .shuffle(workload.examples_per_client)
    .repeat(-(-total // workload.examples_per_client))
    .batch(workload.batch_size)
    .take(workload.local_steps)
    for client_id in store.client_ids
  ]
  tff.backends.native.set_sync_local_cpp_execution_context()
  process = tff.learning.algorithms.build_unweighted_fed_avg(
    _model_fn(workload, store),
    tff.learning.optimizers.build_sgdm(_LEARNING_RATE),
    model_aggregator=(
      tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
        1.5, workload.clients_per_round, _CLIPPING_NORM
      )
    ),
  )
  try:
    state = process.initialize()
    seconds = []
    for _ in range(workload.num_rounds + 2):
      start = time.monotonic()
      state = process.next(state, datasets).state
      seconds.append(time.monotonic() - start)
  finally:
    _end_workers()
  return seconds[2:]


def _model_fn(workload: Workload, store) -> Callable:
  create = keras_models.MODELS[workload.model]
  return keras_models.build_model_fn(
    lambda: create(workload.image_shape, 10), store.element_spec
  )


def _end_workers() -> None:
  """Ends the worker processes that this process has started."""
  for folder in pathlib.Path('/proc').iterdir():
    try:
      fields = (folder / 'stat').read_text().rsplit(')', 1)[1].split()
      name = (folder / 'comm').read_text()
    except (OSError, IndexError):
      continue
    if fields[1] == str(os.getpid()) and name.startswith('worker_binary'):
      os.kill(int(folder.name), signal.SIGKILL)


if __name__ == '__main__':
  main(*sys.argv[1:])
