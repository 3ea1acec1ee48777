r"""Runs the paper's experiments, one after the other, and compares them.

  python -m tasks.reproduce --rows=table3_mlp_mnist_noniid --scales=paper \
      --data_dir=DIR
  python -m tasks.reproduce --data_dir=DIR

The second runs again all that is published in results/. Every combination of
--rows, --scales, --algorithms and --seeds is a run; * stands for any letters. A
run whose c is half of the mean norm of FedAvg's updates has the run of FedAvg
before it. Each run gets a folder in --output_dir. Other flags are those of
`tasks.train`, for all runs. The same command skips the runs that have ended and
continues the one that was stopped.

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

with command_line.importing():
  from tasks import config, many_runs, run_flags
  from tasks.experiments import ROWS, NamedRun, compared_algorithms

_ROWS = flags.DEFINE_list('rows', [], 'Rows of the table of experiments.')
_SCALES = flags.DEFINE_list('scales', [], 'The scales of the rows.')
_ALGORITHMS = flags.DEFINE_list(
  'algorithms', [], 'The algorithms; else those that a row compares.'
)
_SEEDS = config.define_integers(
  'seeds', [], 'The seeds of each run; else 0, or those of the published runs.'
)


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
    if not matching:
      raise ValueError(
        f'`rows` must be among {", ".join(ROWS)}, found {pattern!r}.'
      )
    runs += [
      NamedRun(row, scale, algorithm, variants=tuple(variants))
      for row in matching
      for algorithm in algorithms or compared_algorithms(row)
    ]
  return runs


def with_thresholds(
  runs: Iterable[NamedRun], seeds: Sequence[int] = ()
) -> list[NamedRun]:
  """Returns runs, each once and after the one that gives its c.

  A run that gives the c of another is added where it is missing. Without seeds,
  each has its own.
  """
  if seeds:
    runs = [
      dataclasses.replace(run, seed=seed) for seed in seeds for run in runs
    ]
  found: dict[str, NamedRun] = {}
  for run in runs:
    for each in (run.threshold_run, run):
      if each is not None:
        found.setdefault(each.name, each)
  return list(found.values())


def plan() -> tuple[dict[str, tuple[str, ...]], pathlib.Path]:
  """Returns the flags of each run that is asked for, and the folder of all."""
  for name in ('row', 'scale', 'algorithm', 'seed'):
    if flags.FLAGS[name].present:
      raise ValueError(f'`{name}` must be given as `{name}s` here.')
  variants = flags.FLAGS['variants'].value
  if bool(_ROWS.value) != bool(_SCALES.value):
    raise ValueError('`rows` and `scales` must be given together.')
  if (_ALGORITHMS.value or variants) and not _ROWS.value:
    raise ValueError('`algorithms` and `variants` must be given with `rows`.')
  runs = published_runs()
  if _ROWS.value:
    runs = named_runs(_ROWS.value, _SCALES.value, _ALGORITHMS.value, variants)
  folder = pathlib.Path(flags.FLAGS['output_dir'].value or 'runs/reproduction')
  runs = with_thresholds(runs, _SEEDS.value)
  return dict(_name_and_flags(run, folder) for run in runs), folder


def _name_and_flags(
  run: NamedRun, folder: pathlib.Path
) -> tuple[str, tuple[str, ...]]:
  """The folder and the flags of a run; the flags of all are in the name."""
  # It reads no files.
  unread = ('data_dir',) if ROWS[run.row]['task'] == 'embedded_digits' else ()
  common = many_runs.given_flags(without=('variants', *unread))
  changes = ''.join(
    f'-{flag.removeprefix("--").replace("/", "-")}'
    for flag in common
    if flag.removeprefix('--').partition('=')[0] not in run_flags.NOT_OF_THE_ROW
  )
  names = dataclasses.asdict(run) | {'variants': ','.join(run.variants)}
  given = [*common, *(f'--{name}={value}' for name, value in names.items())]
  if run.threshold_run and not flags.FLAGS['clipping_norm'].present:
    source = folder / f'{run.threshold_run.name}{changes}'
    given.append(f'--clipping_norm_from={source}')
  return f'{run.name}{changes}', tuple(given)


if __name__ == '__main__':
  many_runs.run_planned(plan)
