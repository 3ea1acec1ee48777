"""Shows how the cost of a round grows: with P, Q, the model and the population.

  python -m benchmarks.scaling

P and Q are varied in the complete private round of the perceptron, the size of
the model in the aggregation of updates alone, and the number of clients N in
what a round does for the whole population: sampling, and charging the ledger.
"""

import collections
import dataclasses
import json
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow_federated as tff
from absl import app, flags, logging

from benchmarks import federated, machine, summaries
from benchmarks.workload import WORKLOADS, Workload
from tff_clipping import aggregators, privacy, runtime
from tff_clipping.programs.clients import client_sampling

_OUTPUT = flags.DEFINE_string('output', None, 'Where to save the figures.')

_POPULATIONS = (1_920, 1_000_000)
# Of a release; what it is does not matter to the time.
_DIGEST = 64 * '0'
_CLIENTS_PER_ROUND = 80


def main(argv: list[str]) -> None:
  """Measures, prints and saves."""
  del argv
  logging.set_verbosity(logging.WARNING)
  base = dataclasses.replace(WORKLOADS['mlp'], num_rounds=3)
  found = collections.OrderedDict()
  description = machine.describe()
  print(machine.headline(description))
  for name, values in (
    ('clients_per_round', (20, 40, 80)),
    ('local_steps', (8, 16, 32)),
  ):
    found[name] = {
      value: _round_seconds(dataclasses.replace(base, **{name: value}))
      for value in values
    }
    _print(name, found[name])
  found['parameters'] = {
    size: _aggregation_seconds(size)
    for size in (1_000_000, 4_000_000, 16_000_000)
  }
  _print('parameters, aggregation of 8 updates', found['parameters'])
  for name, measure in (
    ('Poisson sampling', _poisson),
    ('sampling of a fixed size', _fixed_size),
    ('ledger', _ledger),
  ):
    found[name] = {n: measure(n) for n in _POPULATIONS}
    print(f'\n{name}, of N clients')
    for population, seconds in found[name].items():
      print(f'  {population:>10,}  {seconds * 1e3:8.2f} ms a round')
  if _OUTPUT.value:
    pathlib.Path(_OUTPUT.value).write_text(
      json.dumps(dict(machine=description, seconds=found), indent=2)
    )


def _print(name: str, seconds: dict[int, float]) -> None:
  print(f'\n{name}')
  for value, median in seconds.items():
    print(f'  {value:>10,}  {median:8.3f} s a round')
  costs = ', '.join(f'{cost:.3g}' for cost in summaries.marginal_cost(seconds))
  print(f'  one more costs: {costs} s')


def _round_seconds(workload: Workload) -> float:
  with tempfile.TemporaryDirectory() as folder:
    result = federated.run_ours(workload, pathlib.Path(folder))
  return statistics.median(result['seconds'])


def _aggregation_seconds(size: int) -> float:
  """Returns the time of `dp_mean_factory` on updates of `size` parameters."""
  runtime.set_default_context()
  process = aggregators.dp_mean_factory(
    clipping_norm=1.0, noise_multiplier=1.0, clients_per_round=8
  ).create(tff.TensorType(np.float32, [size]))
  updates = [np.full([size], 1e-4, np.float32)] * 8
  state = process.initialize()
  return _median(lambda: process.next(state, updates), 5)


def _poisson(population: int) -> float:
  sampler = client_sampling.PoissonSampler(
    _ids(population), sampling_prob=_CLIENTS_PER_ROUND / population, seed=0
  )
  return _median_of_rounds(sampler.sample)


def _fixed_size(population: int) -> float:
  sampler = client_sampling.FixedSizeSampler(
    _ids(population), clients_per_round=_CLIENTS_PER_ROUND, seed=0
  )
  return _median_of_rounds(sampler.sample)


def _ledger(population: int) -> float:
  plan = privacy.PrivacyPlan.from_noise_multiplier(
    num_clients=population,
    clients_per_round=_CLIENTS_PER_ROUND,
    num_rounds=100,
    noise_multiplier=1.5,
    target_delta=1e-7,
  )
  with (
    tempfile.TemporaryDirectory() as folder,
    privacy.PrivacyLedger(
      pathlib.Path(folder) / 'ledger.jsonl', plan
    ) as ledger,
  ):

    def charge(round_num: int) -> float:
      ledger.charge(round_num, _DIGEST)
      return ledger.epsilon

    return _median_of_rounds(charge)


def _ids(population: int) -> Sequence[str]:
  return [f'{client:07d}' for client in range(population)]


def _median_of_rounds(run: Callable[[int], object]) -> float:
  rounds = iter(range(1, 100))
  return _median(lambda: run(next(rounds)), 20)


def _median(run: Callable[[], object], repeats: int) -> float:
  """Returns the median time of `run`, after a first call that is not timed."""
  run()
  seconds = []
  for _ in range(repeats):
    start = time.monotonic()
    run()
    seconds.append(time.monotonic() - start)
  return statistics.median(seconds)


if __name__ == '__main__':
  app.run(main)
