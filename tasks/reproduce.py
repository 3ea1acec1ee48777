r"""Runs what docs/reproduction.md is made of, or a part of it.

  python -m tasks.reproduce table3_mlp --seeds=0,1,2 --data_dir=DIR

The names are those of the flag files of tasks/flagfiles/reduced and
tasks/flagfiles/more, or beginnings of them; without one, all are run. Each run
gets a folder in --output_dir, named after its file and its seed; the FedAvg
run whose norms give the threshold of another is run before it. The same
command again skips what is finished and continues what was stopped.

Exit codes: 0 all runs ended, 1 a run failed, 2 wrong flags, 130 Ctrl-C.
"""

import dataclasses
import pathlib
import re
import subprocess
import sys
from collections.abc import Sequence

from absl import app, flags

from tasks import data_flags

FLAG_FILES = pathlib.Path('tasks/flagfiles')
FOLDERS = ('reduced', 'more')

# FedAvg comes first: the others take their threshold from it.
_ALGORITHMS = (
  'fed_avg',
  'ce_fed_avg',
  'dp_fed_avg',
  'model_clipping_fed_avg',
)
# Table 4 repeats these two rows of Table 2, so FedAvg and CE-FedAvg are the
# same runs.
_SAME = {
  f'table4_{model}_cifar10_iid_{algorithm}': (
    f'table2_{model}_cifar10_iid_{algorithm}'
  )
  for model in ('alexnet', 'resnet18')
  for algorithm in ('fed_avg', 'ce_fed_avg')
}
_CLIPPED_AS = re.compile(r'^--clipping_norm_from=.*?([^/\s]+)$', re.MULTILINE)
# A task that takes no --data_dir.
_WITHOUT_FILES = 'embedded_digits'
# The run ended: finished, diverged, or its budget is spent.
_ENDED = (0, 3, 4)


@dataclasses.dataclass(frozen=True)
class PlannedRun:
  """One run: a flag file with a seed.

  Attributes:
    flag_file: The file.
    seed: The seed of the split, of the initial model and of the cohorts.
  """

  flag_file: pathlib.Path
  seed: int

  @property
  def name(self) -> str:
    """The name of the run's folder."""
    return f'{self.flag_file.stem}_seed{self.seed}'

  def command(
    self,
    output_dir: pathlib.Path,
    *,
    data_dir: str | None = None,
    cache_dir: str | None = None,
  ) -> list[str]:
    """Returns the command of the run.

    Args:
      output_dir: Where its folder is, and that of the run that it clips like.
      data_dir: See `tasks.train`; not for the digits that need no files.
      cache_dir: See `tasks.train`.
    """
    flags_of_run = [
      f'--flagfile={self.flag_file}',
      f'--seed={self.seed}',
      f'--model_seed={self.seed}',
      f'--sampling_seed={self.seed}',
      f'--output_dir={output_dir / self.name}',
    ]
    source = _clipped_as(self.flag_file)
    if source is not None:
      flags_of_run.append(
        f'--clipping_norm_from={output_dir / f"{source}_seed{self.seed}"}'
      )
    if data_dir is not None and _WITHOUT_FILES not in self.flag_file.stem:
      flags_of_run.append(f'--data_dir={data_dir}')
    if cache_dir is not None:
      flags_of_run.append(f'--cache_dir={cache_dir}')
    return [sys.executable, '-m', 'tasks.train', *flags_of_run]


def plan_runs(names: Sequence[str], seeds: Sequence[int]) -> list[PlannedRun]:
  """Returns the runs of some names, FedAvg before what clips as it says.

  A FedAvg run that one of them takes its threshold from is among them.

  Args:
    names: Names of flag files without .flags, or beginnings; none for all.
    seeds: The seeds of each.

  Raises:
    ValueError: If a name is none of a file.
  """
  files = {
    path.stem: path
    for folder in FOLDERS
    for path in sorted((FLAG_FILES / folder).glob('*.flags'))
  }
  wanted = set()
  for name in names or ('',):
    # A whole name can be the beginning of another.
    found = (
      [name] if name in files else [s for s in files if s.startswith(name)]
    )
    if not found:
      raise ValueError(
        f'A name must be a flag file of {" or ".join(FOLDERS)}, or the '
        f'beginning of one, found {name!r}.'
      )
    wanted.update(_SAME.get(stem, stem) for stem in found)
  wanted.update([source for s in wanted if (source := _clipped_as(files[s]))])
  ordered = sorted(wanted, key=_position)
  return [PlannedRun(files[stem], seed) for seed in seeds for stem in ordered]


def _clipped_as(flag_file: pathlib.Path) -> str | None:
  """The name of the run whose norms give the threshold, without its seed."""
  found = _CLIPPED_AS.search(flag_file.read_text())
  return None if found is None else _SAME.get(found[1], found[1])


def _position(stem: str) -> tuple[str, int, str]:
  """The row of a flag file, then the algorithm."""
  # 'fed_avg' is part of all others' names.
  for rank in (1, 2, 3, 0):
    row, found, _ = stem.partition('_' + _ALGORITHMS[rank])
    if found:
      return row, rank, stem
  return stem, len(_ALGORITHMS), stem


def main(argv: Sequence[str]) -> int:
  """Runs what the flags name; returns the exit code."""
  output_dir = flags.FLAGS['output_dir'].value
  try:
    seeds = [int(seed) for seed in flags.FLAGS['seeds'].value]
    runs = plan_runs(argv[1:], seeds)
  except ValueError as e:
    print(f'Error: {e}', file=sys.stderr)
    return 2
  failed = []
  try:
    for number, run in enumerate(runs, start=1):
      print(f'[{number}/{len(runs)}] {run.name}', flush=True)
      command = run.command(
        pathlib.Path(output_dir),
        data_dir=data_flags.DATA_DIR.value,
        cache_dir=data_flags.CACHE_DIR.value,
      )
      if _train(command) not in _ENDED:
        failed.append(run.name)
  except KeyboardInterrupt:
    print('Stopped; the same command continues.', file=sys.stderr)
    return 130
  if failed:
    print(f'Failed: {", ".join(failed)}.', file=sys.stderr)
  return 1 if failed else 0


def _train(command: Sequence[str]) -> int:
  """Runs `tasks.train`; returns its exit code."""
  process = subprocess.Popen(command)
  try:
    return process.wait()
  except KeyboardInterrupt:
    # Ctrl-C has reached it too, and it writes a checkpoint.
    process.wait()
    raise


def run() -> None:
  """Parses the flags, runs `main` and exits with its code."""
  flags.DEFINE_list('seeds', ['0'], 'The seeds of each run.')
  flags.DEFINE_string(
    'output_dir', 'runs/reproduction', 'Where the folders of the runs are.'
  )
  flags.adopt_module_key_flags(data_flags)
  app.define_help_flags()
  try:
    argv = flags.FLAGS(sys.argv)
  except flags.Error as e:
    print(f'Error: {e}', file=sys.stderr)
    sys.exit(2)
  sys.exit(main(argv))


if __name__ == '__main__':
  run()
