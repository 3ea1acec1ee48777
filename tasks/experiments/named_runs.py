"""Runs by their names in `experiment_table`: settings, folders and order.

`python -m tasks.experiments.named_runs` lists the names.
"""

import dataclasses
import fractions
import pathlib
from collections.abc import Sequence
from typing import Any

from tasks.experiments import experiment_table as table
from tasks.experiments.experiment_table import Row, Scale, Value, Variant
from tasks.settings.setting_fields import one_of

# How a run is watched: these settings do not make it another experiment.
WATCHING = (
  'rounds_per_evaluation',
  'test_examples',
  'rounds_per_checkpoint',
  'update_rounds',
)
_SEEDS = ('seed', 'model_seed', 'sampling_seed')


@dataclasses.dataclass(frozen=True)
class NamedRun:
  """One run of the table.

  Attributes:
    row: What is repeated.
    scale: How large.
    algorithm: One of `experiment_table.ALGORITHMS`.
    seed: The seed of the split, of the initial model and of the cohorts.
    variants: What is changed.
  """

  row: Row
  scale: Scale
  algorithm: str
  seed: int = 0
  variants: tuple[Variant, ...] = ()

  def __post_init__(self):
    one_of(*table.ALGORITHMS)('algorithm', self.algorithm)
    for variant in self.variants:
      if self.algorithm not in variant.algorithms:
        raise ValueError(
          f'`variants` must fit the algorithm, found {variant.name}, which is '
          f'of {" and ".join(variant.algorithms)}, with {self.algorithm}.'
        )

  @property
  def name(self) -> str:
    """The name of its folder: data, split, model, scale, algorithm, seed.

    Runs of two rows that have the same settings have the same name.
    """
    split = self.row.split
    partition = split.partition
    if split.examples_per_client is not None:
      partition += f'_{split.examples_per_client}'
    return '-'.join(
      (
        _in_names(split.task),
        partition,
        _in_names(self.row.model),
        self.scale.name,
        self.algorithm,
        *(variant.name for variant in self.variants),
        f'seed{self.seed}',
      )
    )

  def to_json(self) -> dict[str, Any]:
    """The names as config.json has them; `get_run(**names)` is the run."""
    return {
      'row': self.row.name,
      'scale': self.scale.name,
      'algorithm': self.algorithm,
      'seed': self.seed,
      'variants': [variant.name for variant in self.variants],
    }

  @property
  def values(self) -> dict[str, Value]:
    """The settings, each with its source; those not said have the default.

    c is among them only where a variant gives it: else it comes from
    `threshold_run`.
    """
    row, scale = self.row, self.scale
    algorithm = table.ALGORITHMS[self.algorithm]
    split = row.split
    source = 'ours' if row.table is None else f'Table {row.table}'
    values = {
      'task': Value(split.task, split.source),
      'partition': Value(split.partition, split.source),
      'num_clients': _share(
        Value(split.num_clients, split.source), scale.client_share
      ),
      'examples_per_client': Value(split.examples_per_client, split.source),
      'model': Value(row.model, source),
      'client_learning_rate': _rate(row),
      'algorithm': Value(self.algorithm, source),
      'clients_per_round': _share(row.clients_per_round, scale.client_share),
      **table.COMMON,
      **scale.settings,
      **algorithm.settings,
    }
    if algorithm.is_private:
      values['target_epsilon'] = Value(row.epsilon, source)
      values['target_delta'] = row.delta
    if algorithm.clips == 'updates' and row.clipping_norm is not None:
      values['clipping_norm'] = row.clipping_norm
    for name in _SEEDS:
      values[name] = Value(
        self.seed, 'one for all three; the run can be repeated'
      )
    for variant in self.variants:
      values |= variant.settings
    if 'min_separation' in values and values['num_clients'].value is not None:
      values['min_separation'] = Value(
        values['num_clients'].value // values['clients_per_round'].value,
        'N / P, rounded down: every client once in so many rounds',
      )
    return values

  @property
  def settings(self) -> dict[str, Any]:
    """The values for an `ExperimentConfig`, without their sources."""
    return {name: value.value for name, value in self.values.items()}

  @property
  def threshold_run(self) -> 'NamedRun | None':
    """The run of FedAvg whose updates give c; `None` if c is not from a run.

    Source: Sec. 2.2 and 4: c is half of the mean norm of the updates of FedAvg
    with the same settings.
    """
    if table.ALGORITHMS[self.algorithm].clips != 'updates':
      return None
    if 'clipping_norm' in self.values:
      return None
    return self.beside('fed_avg')

  def beside(self, algorithm: str) -> 'NamedRun':
    """The run of another algorithm that it is compared with.

    It has the same row, scale, seed and variants, but for the variants that the
    algorithm does not have.
    """
    return dataclasses.replace(
      self,
      algorithm=algorithm,
      variants=tuple(v for v in self.variants if algorithm in v.algorithms),
    )


def get_run(
  row: str,
  scale: str,
  algorithm: str,
  seed: int = 0,
  variants: Sequence[str] = (),
) -> NamedRun:
  """Returns the run with these names.

  Args:
    row: One of `experiment_table.ROWS`.
    scale: One of `experiment_table.SCALES`.
    algorithm: One of `experiment_table.ALGORITHMS`.
    seed: The seed of the split, of the initial model and of the cohorts.
    variants: Some of `experiment_table.VARIANTS`.

  Raises:
    ValueError: If there is no such row, scale, algorithm or variant, or a
      variant is not of the algorithm.
  """
  one_of(*table.ROWS)('row', row)
  one_of(*table.SCALES)('scale', scale)
  for variant in variants:
    one_of(*table.VARIANTS)('variants', variant)
  return NamedRun(
    table.ROWS[row],
    table.SCALES[scale],
    algorithm,
    seed,
    tuple(table.VARIANTS[variant] for variant in variants),
  )


def _in_names(text: str) -> str:
  """A name as part of that of a folder: of FILE.py:function, file_function."""
  file, _, function = text.partition(':')
  name = pathlib.PurePath(file).stem
  return f'{name}_{function}' if function else name


def _rate(row: Row) -> Value:
  if row.client_learning_rate is not None:
    return row.client_learning_rate
  task = row.split.task
  # EMNIST's rates are those of MNIST.
  known = 'mnist' if task == 'emnist_digits' else task
  rate = table.RATES.get(row.model, {}).get(known)
  if rate is None:
    raise ValueError(
      f'`row` must have a `client_learning_rate`, found none in {row.name} and '
      f'none in `RATES` for {row.model} on {task}.'
    )
  if task == 'embedded_digits':
    return Value(rate, 'not in the paper; a small search on FedAvg')
  return Value(
    rate,
    f'not in the paper; the search {row.model}_{known} of results/searches.csv',
  )


def _share(value: Value, share: fractions.Fraction) -> Value:
  """N or P of a reduced scale."""
  if value.value is None or share == 1:
    return value
  return Value(
    round(value.value * share), f'{share} of {value.value} ({value.source})'
  )


def _print_names() -> None:
  for row in table.ROWS.values():
    print(f'--row={row.name:34} {row.model} on {row.split.task}')
  for scale in table.SCALES.values():
    print(f'--scale={scale.name:32} {scale.description}')
  for variant in table.VARIANTS.values():
    changes = '; '.join(
      f'{name} = {value.value}: {value.source}'
      for name, value in variant.settings.items()
    )
    print(f'--variants={variant.name:29} {changes}')


if __name__ == '__main__':
  _print_names()
