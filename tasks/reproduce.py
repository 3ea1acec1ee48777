r"""Runs the paper's experiments, one after the other, and compares them.

  python -m tasks.reproduce --rows=table3_mlp_mnist_noniid --scales=paper \
      --data_dir=DIR
  python -m tasks.reproduce --data_dir=DIR

The second runs again all that is published in results/. Every combination of
--rows, --scales, --algorithms and --seeds is a run; * stands for any letters. A
run whose c is half of the mean norm of FedAvg's updates has the run of FedAvg
before it, unless --clipping_norm or --clipping_norm_from gives c. Each run gets
a folder in --output_dir. Other flags are those of `tasks.train`, for all runs.
The same command skips the runs that have ended and continues the one that was
stopped.

Exit codes: as those of `tasks.sweep`.
"""

import contextlib
import dataclasses
import fnmatch
import itertools
import json
import pathlib
from collections.abc import Iterable, Sequence

from absl import flags

from tasks import command_line
from tasks.checks import check

with command_line.importing():
  from tasks import config, sweep, train
  from tasks.experiments import ROWS, NamedRun, compared_algorithms

_PUBLISHED = pathlib.Path(__file__).parents[1] / 'results' / 'runs.jsonl'
# Rows and scales of small cohorts, in place of published runs whose variants
# went: these have the noise on the mean that the paper's P has.
_WITH_NOISE_OF_80 = (
  (('table3_mlp_mnist_*', 'table3_alexnet_mnist_*'), ('paper_steps',)),
  (('table4_mlp_cifar10_*', 'table4_alexnet_cifar10_*'), ('paper_steps',)),
  (('table3_*_mnist_*',), ('reduced', 'reduced_100_rounds')),
)


def published_runs() -> list[NamedRun]:
  """Returns the published runs, but those whose row, algorithm or variant went.

  Commit 44967cd3 runs these.
  """
  runs = []
  for line in _PUBLISHED.read_text(encoding='utf-8').splitlines():
    with contextlib.suppress(ValueError):
      runs.append(NamedRun(**json.loads(line)['config']['run']))
  for rows, scales in _WITH_NOISE_OF_80:
    found = named_runs(rows, scales, ('dp_fed_avg',), ('noise_of_80',))
    runs += with_thresholds(found, seeds=(0, 1, 2))
  return runs


def named_runs(
  rows: Sequence[str],
  scales: Sequence[str],
  algorithms: Sequence[str] = (),
  variants: Sequence[str] = (),
) -> list[NamedRun]:
  """Returns the run of each row, scale and algorithm, each with all variants.

  In the name of a row, * stands for any letters. Without algorithms, they are
  those that each row compares.

  Raises:
    ValueError: If a row, a scale, an algorithm or a variant does not exist.
  """
  runs = []
  for scale, pattern in itertools.product(scales, rows):
    matching = fnmatch.filter(ROWS, pattern)
    must = f'must be among {", ".join(ROWS)}'
    check('rows', matching, must, repr(pattern))
    runs += [
      NamedRun(row, scale, algorithm, variants=tuple(variants))
      for row in matching
      for algorithm in algorithms or compared_algorithms(row)
    ]
  return runs


def with_thresholds(
  runs: Iterable[NamedRun],
  seeds: Sequence[int] = (),
  *,
  has_norm: bool = False,
) -> list[NamedRun]:
  """Returns runs, each once and after the one that gives its c.

  A run that gives the c of another is added where it is missing, unless flags
  give c (`has_norm`). Without seeds, each has its own.
  """
  if seeds:
    runs = [
      dataclasses.replace(run, seed=seed) for seed in seeds for run in runs
    ]
  found: dict[str, NamedRun] = {}
  for run in runs:
    for each in (None if has_norm else run.threshold_run, run):
      if each is not None:
        found.setdefault(each.name, each)
  return list(found.values())


def main() -> int:
  """Runs what the flags ask for; returns the exit code."""
  for name in ('row', 'scale', 'algorithm', 'seed'):
    if flags.FLAGS[name].present:
      raise ValueError(f'`{name}` must be given as `{name}s` here.')
  rows, scales, algorithms, variants = (
    flags.FLAGS[name].value
    for name in ('rows', 'scales', 'algorithms', 'variants')
  )
  if bool(rows) != bool(scales):
    raise ValueError('`rows` and `scales` must be given together.')
  if (algorithms or variants) and not rows:
    raise ValueError('`algorithms` and `variants` must be given with `rows`.')
  runs = published_runs()
  if rows:
    runs = named_runs(rows, scales, algorithms, variants)
  output_dir = flags.FLAGS['output_dir'].value or 'runs/reproduction'
  folder = pathlib.Path(output_dir).expanduser()
  has_norm = any(
    flags.FLAGS[name].present
    for name in ('clipping_norm', 'clipping_norm_from')
  )
  planned = {}
  for run in with_thresholds(
    runs, flags.FLAGS['seeds'].value, has_norm=has_norm
  ):
    # It reads no files.
    unread = ['data_dir'] if ROWS[run.row]['task'] == 'embedded_digits' else []
    common = sweep.given_flags(without=['variants', *unread])
    changes = ''.join(map(_in_names, common))
    of_run = dataclasses.asdict(run) | {'variants': ','.join(run.variants)}
    given = [*common, *(f'--{name}={value}' for name, value in of_run.items())]
    if run.threshold_run and not has_norm:
      source = folder / f'{run.threshold_run.name}{changes}'
      given.append(f'--clipping_norm_from={source}')
    planned[f'{run.name}{changes}'] = given
  return sweep.run_all(planned, folder)


def _in_names(flag: str) -> str:
  """A flag as part of the name of a folder, if it changes the experiment."""
  text = flag.removeprefix('--')
  is_watching = text.partition('=')[0] in train.NOT_OF_THE_ROW
  return '' if is_watching else f'-{text.replace("/", "-")}'


if __name__ == '__main__':
  train.define_flags()
  flags.DEFINE_list('rows', [], 'Rows of the table of experiments.')
  flags.DEFINE_list('scales', [], 'The scales of the rows.')
  flags.DEFINE_list(
    'algorithms', [], 'The algorithms; else those that a row compares.'
  )
  config.define_integers(
    'seeds',
    [],
    'The seeds of each run; else 0, or those of the published runs.',
  )
  command_line.run(main)
