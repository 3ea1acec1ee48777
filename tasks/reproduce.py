r"""Runs the paper's experiments, one after the other, and compares them.

  python -m tasks.reproduce --rows=table3_mlp_mnist_noniid --scales=paper \
      --data_dir=DIR
  python -m tasks.reproduce --data_dir=DIR

The second runs all of docs/reproduction.md. Every combination of --rows,
--scales, --algorithms and --seeds is a run; * stands for any letters. A run
whose c is half of the mean norm of FedAvg's updates has the run of FedAvg
before it. Each run gets a folder in --output_dir. Other flags are those of
`tasks.train`, for all runs. The same command skips the runs that have ended and
continues the one that was stopped.

Exit codes: as those of `tasks.sweep`.
"""

import dataclasses
import fnmatch
import itertools
import pathlib
from collections.abc import Iterable, Sequence

from absl import flags

from tasks import command_line

with command_line.importing():
  from tasks import config, many_runs, run_flags
  from tasks.experiments import MUS_TRIED, ROWS, NamedRun, get_run

_ROWS = flags.DEFINE_list('rows', [], 'Rows of the table of experiments.')
_SCALES = flags.DEFINE_list('scales', [], 'The scales of the rows.')
_ALGORITHMS = flags.DEFINE_list(
  'algorithms', [], 'The algorithms; else those that a row compares.'
)
_SEEDS = flags.DEFINE_list(
  'seeds', [], 'The seeds of each run; else 0, or those of the reproduction.'
)


@dataclasses.dataclass(frozen=True)
class Part:
  """Runs of several rows, scales, algorithms and seeds: every combination.

  Attributes:
    rows: Rows of the table; * stands for any letters.
    scales: Their scales.
    seeds: Their seeds.
    algorithms: The algorithms; those that each row compares if there are none.
    variants: The variants of all.
  """

  rows: tuple[str, ...]
  scales: tuple[str, ...]
  seeds: tuple[int, ...] = (0,)
  algorithms: tuple[str, ...] = ()
  variants: tuple[str, ...] = ()


_MLP_ON_MNIST = ('table3_mlp_mnist_noniid',)
_MLPS = (*_MLP_ON_MNIST, 'table4_mlp_cifar10_iid')
_AT_PAPERS_SIZE = tuple(zip(_MLPS, ('paper', 'paper_40_rounds'), strict=True))
_ALEXNETS = ('table2_alexnet_mnist_*', 'table2_alexnet_cifar10_*')
_ALEXNET_ON_MNIST = ('table3_alexnet_mnist_noniid',)
_NOISY_ALEXNETS = (*_ALEXNET_ON_MNIST, 'table4_alexnet_cifar10_iid')
_RESNETS_ON_MNIST = ('table2_resnet18_mnist_*',)
_RESNET_ON_MNIST = ('table3_resnet18_mnist_noniid',)
_NOISY = (
  *_MLP_ON_MNIST,
  *_ALEXNET_ON_MNIST,
  'table3_mobilenet_v2_mnist_noniid',
)
_WITHOUT_NOISE = ('fed_avg', 'ce_fed_avg')
_WHOLE_EPOCHS = ('paper_96_rounds',)
_LARGER = ('epsilon_5',)

# The private systems of Sec. 1 and 2, by the variants of DP-FedAvg.
_SYSTEMS = (
  (),
  ('random_allocation',),
  ('banded',),
  ('fixed_size', 'pld'),
  ('adaptive',),
  ('per_layer',),
  ('distributed',),
  ('scaffold',),
  ('pld',),
)
_ROUNDS_OF_SYSTEMS = {'mnist': _WHOLE_EPOCHS, 'cifar10': ('paper_40_rounds',)}


def _systems(data: str, *budget: str) -> tuple[Part, ...]:
  """The private systems at one budget, that of the rows if none is given."""
  return tuple(
    Part(
      (f'mlp_{data}_half',),
      _ROUNDS_OF_SYSTEMS[data],
      (0, 1, 2),
      ('dp_fed_avg',),
      (*variants, *budget),
    )
    for variants in _SYSTEMS
  )


def _without_noise(data: str) -> tuple[Part, ...]:
  """The runs beside them, and the one that gives their c."""
  scales = _ROUNDS_OF_SYSTEMS[data]
  return (
    Part((f'mlp_{data}_other_half',), scales, (0,), ('fed_avg',)),
    Part((f'mlp_{data}_half',), scales, (0, 1, 2), _WITHOUT_NOISE),
  )


REPRODUCTION = (
  # The rows of the perceptron at the paper's scale, with the paper's sampling
  # and with model clipping.
  Part(_MLP_ON_MNIST, ('paper',), (0, 1, 2)),
  Part(_MLPS[1:], ('paper_40_rounds',), (0, 1, 2)),
  *(
    Part(_MLP_ON_MNIST, ('paper',), (0, 1, 2), (algorithm,), (variant,))
    for algorithm, variant in (
      ('dp_fed_avg', 'paper_sampling'),
      ('model_clipping_fed_avg', 'half_model_norm'),
      ('model_clipping_fed_avg', 'same_threshold'),
    )
  ),
  # DP-FedAvg by sampler, noise and epsilon.
  *(
    Part((row,), (scale,), (0, 1, 2), ('dp_fed_avg',), (*budget, *mechanism))
    for row, scale in _AT_PAPERS_SIZE
    for budget in ((), ('epsilon_5',))
    for mechanism in (
      (),
      ('fixed_size',),
      ('fixed_size', 'pld'),
      ('banded',),
      ('blt',),
    )
  ),
  # DP-FedAvg whose clients draw a round of each epoch, for whole epochs.
  *(
    Part(_MLP_ON_MNIST, _WHOLE_EPOCHS, (0, 1, 2), ('dp_fed_avg',), variants)
    for variants in (
      ('random_allocation',),
      ('epsilon_5', 'random_allocation'),
      ('banded',),
    )
  ),
  # CE-FedAvg with steps as long as FedAvg's.
  *(
    Part(rows, (scale,), (0, 1, 2), ('ce_fed_avg',), ('matched_steps',))
    for rows, scale in (
      (_MLPS[:1], 'paper'),
      (_MLPS[1:], 'paper_40_rounds'),
      (_ALEXNETS, 'reduced_100_rounds'),
      (_MLPS, 'reduced_100_rounds'),
    )
  ),
  # What may explain the perceptron's drops beside the paper's.
  *(
    Part(_MLPS[1:], ('paper',), (0, 1, 2), variants=variants)
    for variants in ((), ('client_rate_0.01',), ('client_rate_0.03',))
  ),
  Part(_MLP_ON_MNIST, ('paper',), (0, 1, 2), variants=('client_rate_0.03',)),
  *(
    Part((row,), (scale,), (0, 1, 2), ('ce_fed_avg', 'dp_fed_avg'), (variant,))
    for (row, scale), variant in zip(
      _AT_PAPERS_SIZE,
      ('half_averaged_norm_mnist', 'half_averaged_norm_cifar10'),
      strict=True,
    )
  ),
  # Other local steps; μ is the best of those tried without a clip.
  Part(_MLP_ON_MNIST, ('paper',), (0, 1, 2), variants=('scaffold',)),
  *(
    Part(_MLP_ON_MNIST, ('paper',), (0,), ('fed_avg',), (f'fed_prox_{mu}',))
    for mu in MUS_TRIED
  ),
  Part(_MLP_ON_MNIST, ('paper',), (0, 1, 2), variants=('fed_prox_0.1',)),
  # The systems of Sec. 1 and 2; c is of the other half of the data.
  *_without_noise('mnist'),
  *_systems('mnist'),
  *_systems('mnist', *_LARGER),
  *_without_noise('cifar10'),
  *_systems('cifar10'),
  *_systems('cifar10', *_LARGER),
  Part(('geyer_*',), ('geyer',), (0, 1, 2), ('dp_fed_avg',), ('adaptive',)),
  # The splits that the paper's figures show.
  *(
    Part(rows, (scale,), (0,), _WITHOUT_NOISE)
    for rows, scale in (
      (('mlp_mnist_iid', 'mlp_cifar10_noniid'), 'paper'),
      (('mobilenet_v2_mnist_iid',), 'reduced_100_rounds'),
    )
  ),
  # With fewer clients, the paper's local steps and its noise on the mean.
  Part((*_MLPS, *_ALEXNETS), ('paper_steps',), (0, 1, 2), _WITHOUT_NOISE),
  Part(_ALEXNET_ON_MNIST, ('paper_steps',), (0, 1, 2), _WITHOUT_NOISE),
  *(
    Part(rows, (scale,), (0, 1, 2), ('dp_fed_avg',), ('noise_of_80',))
    for rows, scale in (
      ((*_MLPS, *_NOISY_ALEXNETS), 'paper_steps'),
      ((*_NOISY, *_RESNET_ON_MNIST), 'reduced'),
      ((*_NOISY, *_RESNET_ON_MNIST), 'reduced_100_rounds'),
    )
  ),
  # The same steps in bfloat16.
  *(
    Part((row,), (scale,), (0, 1, 2), ('fed_avg',), ('bfloat16',))
    for row, scale in (
      *_AT_PAPERS_SIZE,
      ('table2_alexnet_cifar10_iid', 'reduced_100_rounds'),
    )
  ),
  # Audits of the perceptron, under both ways to draw cohorts.
  *(
    Part((row,), (scale,), (0,), ('dp_fed_avg',), variants)
    for row, scale in (
      ('mlp_embedded_digits', 'demo'),
      (*_MLP_ON_MNIST, 'paper'),
    )
    for variants in (('audited',), ('paper_sampling', 'audited'))
  ),
  # Natural clients, and what needs no files.
  Part(('mlp_mnist_writers',), ('paper',), (0, 1, 2)),
  Part(('mlp_embedded_digits',), ('demo',), (0, 1, 2)),
  # The other rows, reduced, and the perceptron to compare them with.
  Part(_ALEXNETS, ('reduced',), (0, 1)),
  Part(_ALEXNETS, ('reduced',), (2,), _WITHOUT_NOISE),
  Part(
    (*_NOISY[1:], *_RESNET_ON_MNIST, *_RESNETS_ON_MNIST),
    ('reduced',),
    (0, 1, 2),
    _WITHOUT_NOISE,
  ),
  Part(
    (
      'table2_resnet18_cifar10_*',
      *_NOISY[1:],
      *_RESNET_ON_MNIST,
      'table4_alexnet_cifar10_iid',
      'table4_resnet18_cifar10_iid',
      'mobilenet_v2_cifar10_iid',
    ),
    ('reduced',),
  ),
  Part(_MLPS, ('reduced', 'reduced_paper_cohort'), (0, 1, 2)),
  Part(_ALEXNET_ON_MNIST, ('reduced_paper_cohort',), (0, 1)),
  Part(('table4_alexnet_cifar10_iid',), ('reduced_paper_cohort',)),
  # For longer.
  Part(_ALEXNETS, ('reduced_100_rounds',), (0, 1, 2)),
  Part(
    (*_MLPS, *_NOISY[1:], *_RESNET_ON_MNIST, *_RESNETS_ON_MNIST),
    ('reduced_100_rounds',),
    (0, 1, 2),
    _WITHOUT_NOISE,
  ),
)


def plan_runs(
  parts: Iterable[Part], *, seeds: Sequence[int] = ()
) -> list[NamedRun]:
  """Returns the runs of some parts, each after the one that gives its c.

  Args:
    parts: What to run. A run of several of them is there once, and a run that
      gives the c of one of them is there too.
    seeds: The seeds of all; those of the parts if there are none.

  Raises:
    ValueError: If a row, a scale, an algorithm or a variant does not exist.
  """
  runs: dict[str, NamedRun] = {}
  for part in parts:
    for seed, scale, row in itertools.product(
      seeds or part.seeds, part.scales, _rows(part.rows)
    ):
      for algorithm in part.algorithms or ROWS[row].algorithms:
        run = get_run(row, scale, algorithm, seed, part.variants)
        for needed in (run.threshold_run, run):
          if needed is not None:
            runs.setdefault(needed.name, needed)
  return list(runs.values())


def _rows(patterns: Sequence[str]) -> list[str]:
  """The rows that patterns stand for."""
  found = []
  for pattern in patterns:
    matching = fnmatch.filter(ROWS, pattern)
    if not matching:
      raise ValueError(
        f'`rows` must be among {", ".join(ROWS)}, found {pattern!r}.'
      )
    found += matching
  return found


def plan() -> tuple[list[many_runs.PlannedRun], pathlib.Path]:
  """Returns the runs that the flags name, and the folder of all."""
  for name in ('row', 'scale', 'algorithm', 'seed'):
    if flags.FLAGS[name].present:
      raise ValueError(f'`{name}` must be given as `{name}s` here.')
  variants = tuple(flags.FLAGS['variants'].value)
  if bool(_ROWS.value) != bool(_SCALES.value):
    raise ValueError('`rows` and `scales` must be given together.')
  if (_ALGORITHMS.value or variants) and not _ROWS.value:
    raise ValueError('`algorithms` and `variants` must be given with `rows`.')
  parts = REPRODUCTION
  if _ROWS.value:
    parts = (
      Part(
        tuple(_ROWS.value),
        tuple(_SCALES.value),
        algorithms=tuple(_ALGORITHMS.value),
        variants=variants,
      ),
    )
  seeds = config.parse_list('seeds', _SEEDS.value, int)
  folder = pathlib.Path(flags.FLAGS['output_dir'].value or 'runs/reproduction')
  runs = plan_runs(parts, seeds=seeds)
  return [_planned(run, folder) for run in runs], folder


def _planned(run: NamedRun, folder: pathlib.Path) -> many_runs.PlannedRun:
  """The run with the flags of this command, which its name tells."""
  # It reads no files.
  unread = ('data_dir',) if run.row.split.task == 'embedded_digits' else ()
  common = many_runs.given_flags(without=('variants', *unread))
  changes = ''.join(
    f'-{flag.removeprefix("--").replace("/", "-")}'
    for flag in common
    if flag.removeprefix('--').partition('=')[0] not in run_flags.NOT_OF_THE_ROW
  )
  names = run.to_json() | {'variants': ','.join(v.name for v in run.variants)}
  of_norm = []
  if run.threshold_run and not flags.FLAGS['clipping_norm'].present:
    source = folder / f'{run.threshold_run.name}{changes}'
    of_norm = [f'--clipping_norm_from={source}']
  return many_runs.PlannedRun(
    f'{run.name}{changes}',
    (*common, *(f'--{k}={v}' for k, v in names.items()), *of_norm),
  )


if __name__ == '__main__':
  many_runs.run_planned(plan)
