"""Complete rounds: ours through the training program, and stock TFF's.

  python -m benchmarks.federated ours mlp

The first argument is a mode of `MODES`, the second a workload. Prints, as JSON,
the seconds of the timed rounds and, where it trains to learn, the accuracy. A
program of its own, since TFF's native context leaves a worker behind, which
this ends.
"""

import json
import pathlib
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import psutil
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import workload as workloads
from benchmarks.turns import Rounds, total_rounds
from benchmarks.workload import WORKLOADS, Workload
from tasks.models import evaluation, keras_models, objective, run_models
from tff_clipping import aggregators, learning, privacy, runtime
from tff_clipping.programs.clients import client_sampling, client_store
from tff_clipping.programs.training.checkpoints import Checkpoints
from tff_clipping.programs.training.metrics_files import MetricsFiles
from tff_clipping.programs.training.training_program import (
  StopReason,
  TrainingProgram,
)
from tff_clipping.programs.training.watchers import AfterRounds

_NOISE_MULTIPLIER = 1.5
# Cohorts in the population that is charged for.
_POPULATION = 24
# So small that the noise does not destroy the model, whatever its size: the
# work is the same for every norm.
_CLIPPING_NORM = 1e-3


def main(mode: str, name: str) -> None:
  """Prints what a mode finds of a workload."""
  with tempfile.TemporaryDirectory() as folder:
    result = MODES[mode](WORKLOADS[name], pathlib.Path(folder))
    print(json.dumps(result), flush=True)


def run_ours(
  workload: Workload, folder: pathlib.Path, *, private: bool = True
) -> dict[str, Any]:
  """Everything that a run does: sampler, ledger, metrics, files.

  Args:
    workload: The work.
    folder: Where the files go.
    private: DP-FedAvg; FedAvg with an evaluation at the end if not.
  """
  store = _write_store(workload, folder)
  runtime.set_default_context()
  # First, as in every program: see docs/runtime.md on Keras.
  evaluate = (
    (lambda weights: dict(test_accuracy=0.0, test_loss=0.0))
    if private
    else _evaluation(workload, store)
  )
  # From the end of a round to the end of the next: nothing is left out.
  rounds, rows = Rounds(workload.num_rounds), []
  num_rounds = total_rounds(workload.num_rounds)
  plan = _private_plan(workload, num_rounds) if private else None
  clients = store.preprocess(keras_models.scale_images)
  process = learning.build_fed_avg(
    _model_fn(workload, clients),
    local_steps=workload.local_steps,
    batch_size=workload.batch_size,
    client_learning_rate=workload.client_learning_rate,
    client_store=clients,
    model_aggregator=(
      None
      if plan is None
      else aggregators.dp_mean_factory(
        clipping_norm=_CLIPPING_NORM, **plan.aggregator_parameters._asdict()
      )
    ),
  )

  def note(metrics: Mapping[str, Any]) -> None:
    rows.append(metrics)
    rounds.advance()

  sampler = client_sampling.FixedSizeSampler(
    store.client_ids, clients_per_round=workload.clients_per_round, seed=0
  )
  if plan is not None:
    # As it says: these rounds are only timed.
    sampler.charged_as = plan.sampler_parameters
  program = TrainingProgram(
    process=process,
    sampler=sampler,
    num_rounds=num_rounds,
    evaluate=evaluate,
    # The last round ends with the evaluation and the checkpoint.
    rounds_per_evaluation=num_rounds,
    checkpoints=Checkpoints(folder / 'checkpoints'),
    rounds_per_checkpoint=num_rounds,
    watchers=[
      MetricsFiles(
        folder / 'metrics.csv', tensorboard_dir=folder / 'tensorboard'
      ),
      AfterRounds(note),
    ],
    ledger=(
      None
      if plan is None
      else privacy.PrivacyLedger(folder / 'ledger.jsonl', plan)
    ),
  )
  rounds.advance()
  result = program.run()
  if result.reason is not StopReason.FINISHED:
    raise RuntimeError(result.message)
  accuracy = None if private else float(rows[-1]['test_accuracy'])
  return dict(seconds=rounds.seconds, accuracy=accuracy)


def run_stock(
  workload: Workload, folder: pathlib.Path, *, private: bool = True
) -> dict[str, Any]:
  """TFF's own algorithm, with its own aggregator in its own context."""
  store = _write_store(workload, folder)
  evaluate = _evaluation(workload, store)
  tff.backends.native.set_sync_local_cpp_execution_context()
  total = workload.local_steps * workload.batch_size
  datasets = [
    store.create_dataset(client_id)
    .shuffle(workloads.EXAMPLES_PER_CLIENT)
    .repeat(-(-total // workloads.EXAMPLES_PER_CLIENT))
    .batch(workload.batch_size)
    .take(workload.local_steps)
    for client_id in store.client_ids
  ]
  process = tff.learning.algorithms.build_unweighted_fed_avg(
    _model_fn(workload, store),
    tff.learning.optimizers.build_sgdm(workload.client_learning_rate),
    model_aggregator=(
      tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
        _NOISE_MULTIPLIER, workload.clients_per_round, _CLIPPING_NORM
      )
      if private
      else None
    ),
  )
  try:
    state = process.initialize()
    rounds = Rounds(workload.num_rounds)
    for _ in rounds:
      state = process.next(state, datasets).state
    weights = process.get_model_weights(state)
  finally:
    end_workers()
  accuracy = None if private else evaluate(weights)['test_accuracy']
  return dict(seconds=rounds.seconds, accuracy=accuracy)


MODES: Mapping[str, Callable[[Workload, pathlib.Path], dict[str, Any]]] = {
  'ours': run_ours,
  'ours_fed_avg': lambda *args: run_ours(*args, private=False),
  'stock': run_stock,
  'stock_fed_avg': lambda *args: run_stock(*args, private=False),
}


def _write_store(
  workload: Workload, folder: pathlib.Path
) -> client_store.ClientStore:
  return client_store.write_client_store(
    folder, 'bench', workloads.load_digits()[0], workload.partition()
  )


def _private_plan(workload: Workload, num_rounds: int) -> privacy.PrivacyPlan:
  # All clients take part in each round, so that each round is the same work;
  # the accounting is that of a larger population.
  return privacy.PrivacyPlan.from_noise_multiplier(
    num_clients=_POPULATION * workload.clients_per_round,
    clients_per_round=workload.clients_per_round,
    num_rounds=num_rounds,
    noise_multiplier=_NOISE_MULTIPLIER,
    target_delta=1e-5,
  )


def _evaluation(workload: Workload, store: client_store.ClientStore):
  """Returns what gives the accuracy of weights on the test digits."""
  accuracy = objective.TestMetric(
    'accuracy', tf.keras.metrics.SparseCategoricalAccuracy()
  )
  return evaluation.build_evaluation_fn(
    _model_fn(workload, store), workloads.load_digits()[1], [accuracy]
  )


def _model_fn(workload: Workload, clients) -> Callable:
  create = keras_models.MODELS[workload.model]
  return run_models.build_model_fn(
    lambda: create(
      workloads.IMAGE_SHAPE,
      workloads.NUM_CLASSES,
      input_dtype=clients.element_spec['x'].dtype,
    ),
    clients.element_spec,
  )


def end_workers() -> None:
  """Ends the worker processes that this process has started."""
  for child in psutil.Process().children():
    if child.name().startswith('worker_binary'):
      child.kill()


if __name__ == '__main__':
  main(*sys.argv[1:])
