r"""Runs what docs/reproduction.md is made of, or other runs of the table.

  python -m tasks.reproduce --data_dir=DIR
  python -m tasks.reproduce --rows=table3_alexnet_mnist_noniid \
      --scales=reduced --seeds=0,1 --data_dir=DIR

The first runs all of `REPRODUCTION`. The second runs the rows of
`tasks/experiments/experiment_table.py` that it names (* stands for any letters)
at each scale, with their algorithms. The run of FedAvg that gives the threshold
of another one is run before it. Any other flag of `tasks.train` is for all
runs.

Each run gets a folder in --output_dir that is named after its data, split,
model, scale, algorithm and seed. The same command again skips what is finished
and continues what was stopped. sweep.csv and sweep.md there hold a table.

Exit codes: 0 all runs ended, 1 a run failed, 2 wrong flags, 5 a file cannot be
written, 130 Ctrl-C, 143 SIGTERM.
"""

import dataclasses
import pathlib

from tasks.settings.interrupts import importing

with importing():
  from absl import flags

  from tasks.experiments.named_runs import NamedRun
  from tasks.experiments.reproduction_runs import REPRODUCTION, Part, plan_runs
  from tasks.running import run_queue
  from tasks.settings import flags_of_settings

_ROWS = flags.DEFINE_list('rows', [], 'Rows of the table of experiments.')
_SCALES = flags.DEFINE_list('scales', [], 'The scales of the rows.')
_ALGORITHMS = flags.DEFINE_list(
  'algorithms', [], 'The algorithms; else those that a row compares.'
)
_SEEDS = flags.DEFINE_list(
  'seeds', [], 'The seeds of each run; else 0, or those of the reproduction.'
)


def plan() -> tuple[list[run_queue.QueuedRun], pathlib.Path]:
  """Returns the runs that the flags name, and where their folders go."""
  runs = plan_runs(_parts(), seeds=_seeds())
  folder = pathlib.Path(flags.FLAGS['output_dir'].value or 'runs/reproduction')
  seen = {}
  return [_queued(run, folder, seen) for run in runs], folder


def _queued(
  run: NamedRun, folder: pathlib.Path, seen: dict
) -> run_queue.QueuedRun:
  """The run with the flags of this command."""
  names = dict(
    row=run.row.name,
    scale=run.scale.name,
    algorithm=run.algorithm,
    variants=','.join(variant.name for variant in run.variants),
    seed=str(run.seed),
  )
  common = run_queue.given_flags(
    # It reads no files.
    but=('data_dir',) if run.row.split.task == 'embedded_digits' else ()
  )
  arguments = (*common, *(f'--{k}={v}' for k, v in names.items()))
  # Any c stands for one that an earlier run is still to give.
  request = run_queue.check_run(arguments, seen, missing_clipping_norm=1.0)
  request = dataclasses.replace(
    request, output_dir=str(folder / request.folder.name)
  )
  return run_queue.QueuedRun(request, names, arguments)


def _parts() -> tuple[Part, ...]:
  """What the flags name, or all of the reproduction."""
  for name in ('row', 'scale', 'algorithm', 'seed'):
    if flags.FLAGS[name].present:
      raise ValueError(f'`{name}` must be given as `{name}s` here.')
  variants = tuple(flags.FLAGS['variants'].value)
  if not _ROWS.value:
    for flag in (_SCALES, _ALGORITHMS):
      if flag.value:
        raise ValueError(f'`{flag.name}` must be given with `rows`.')
    if variants:
      raise ValueError('`variants` must be given with `rows`.')
    return REPRODUCTION
  if not _SCALES.value:
    raise ValueError('`scales` must be given with `rows`.')
  return (
    Part(
      rows=tuple(_ROWS.value),
      scales=tuple(_SCALES.value),
      algorithms=tuple(_ALGORITHMS.value),
      variants=variants,
    ),
  )


def _seeds() -> tuple[int, ...]:
  """The seeds that are given, if any."""
  seeds = flags_of_settings.integers('seeds', _SEEDS.value)
  if len(set(seeds)) < len(seeds) or (
    flags.FLAGS['seeds'].present and not seeds
  ):
    raise ValueError(
      '`seeds` must be different integers, at least one, found '
      f'{",".join(_SEEDS.value)!r}.'
    )
  return seeds


if __name__ == '__main__':
  run_queue.run_planned(plan)
