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
from typing import NamedTuple

from absl import flags

from tasks import command_line

with command_line.importing():
  from tasks import config, many_runs, run_flags
  from tasks.experiments import (
    MUS_TRIED,
    ROWS,
    NamedRun,
    compared_algorithms,
  )

_ROWS = flags.DEFINE_list('rows', [], 'Rows of the table of experiments.')
_SCALES = flags.DEFINE_list('scales', [], 'The scales of the rows.')
_ALGORITHMS = flags.DEFINE_list(
  'algorithms', [], 'The algorithms; else those that a row compares.'
)
_SEEDS = config.define_integers(
  'seeds', [], 'The seeds of each run; else 0, or those of the reproduction.'
)


class Part(NamedTuple):
  """Runs of several rows, algorithms, variants and seeds: every combination.

  Attributes:
    rows: Rows of the table; * stands for any letters.
    scale: Their scale.
    algorithms: The algorithms; those that each row compares if there are none.
    variants: What is changed, several variants at a time.
    seeds: Their seeds.
  """

  rows: tuple[str, ...]
  scale: str
  algorithms: tuple[str, ...] = ()
  variants: tuple[tuple[str, ...], ...] = ((),)
  seeds: tuple[int, ...] = (0, 1, 2)


_MNIST_MLP = 'table3_mlp_mnist_noniid'
_CIFAR10_MLP = 'table4_mlp_cifar10_iid'
_MLPS = (_MNIST_MLP, _CIFAR10_MLP)
_AT_PAPERS_SIZE = ((_MNIST_MLP, 'paper'), (_CIFAR10_MLP, 'paper_40_rounds'))
_ALEXNETS = ('table2_alexnet_mnist_*', 'table2_alexnet_cifar10_*')
_MNIST_ALEXNET = 'table3_alexnet_mnist_noniid'
_CIFAR10_ALEXNET = 'table4_alexnet_cifar10_iid'
_LARGER_ON_MNIST = (
  *(_MNIST_ALEXNET, 'table3_mobilenet_v2_mnist_noniid'),
  'table3_resnet18_mnist_noniid',
)
_RESNETS_ON_MNIST = 'table2_resnet18_mnist_*'
_WITHOUT_NOISE = ('fed_avg', 'ce_fed_avg')
_DP = ('dp_fed_avg',)


def _at_both_budgets(
  *variants: tuple[str, ...],
) -> tuple[tuple[str, ...], ...]:
  return (*variants, *((*each, 'epsilon_5') for each in variants))


# The private systems of Sec. 1 and 2, by the variants of DP-FedAvg.
_SYSTEMS = _at_both_budgets(
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

REPRODUCTION = (
  # The rows of the perceptron at the paper's scale, with the paper's sampling
  # and with model clipping.
  *(Part((row,), scale) for row, scale in _AT_PAPERS_SIZE),
  Part((_MNIST_MLP,), 'paper', _DP, (('paper_sampling',),)),
  Part(
    (_MNIST_MLP,),
    'paper',
    ('model_clipping_fed_avg',),
    (('half_model_norm',), ('same_threshold',)),
  ),
  # DP-FedAvg by sampler, noise and epsilon.
  *(
    Part(
      (row,),
      scale,
      _DP,
      (
        *((), ('fixed_size',), ('fixed_size', 'pld'), ('banded',), ('blt',)),
        *(('epsilon_5',), ('epsilon_5', 'fixed_size')),
        ('epsilon_5', 'fixed_size', 'pld'),
        *(('epsilon_5', 'banded'), ('epsilon_5', 'blt')),
      ),
    )
    for row, scale in _AT_PAPERS_SIZE
  ),
  # DP-FedAvg whose clients draw a round of each epoch, for whole epochs.
  Part(
    (_MNIST_MLP,),
    'paper_96_rounds',
    _DP,
    (
      *(('random_allocation',), ('epsilon_5', 'random_allocation')),
      ('banded',),
    ),
  ),
  # CE-FedAvg with steps as long as FedAvg's.
  *(
    Part(rows, scale, ('ce_fed_avg',), (('matched_steps',),))
    for rows, scale in (
      *(((row,), scale) for row, scale in _AT_PAPERS_SIZE),
      ((*_ALEXNETS, *_MLPS), 'reduced_100_rounds'),
    )
  ),
  # What may explain the perceptron's drops beside the paper's.
  Part(
    (_CIFAR10_MLP,),
    'paper',
    variants=((), ('client_rate_0.01',), ('client_rate_0.03',)),
  ),
  Part((_MNIST_MLP,), 'paper', variants=(('client_rate_0.03',),)),
  Part(
    *((_MNIST_MLP,), 'paper', ('ce_fed_avg', 'dp_fed_avg')),
    (('half_averaged_norm_mnist',),),
  ),
  Part(
    *((_CIFAR10_MLP,), 'paper_40_rounds', ('ce_fed_avg', 'dp_fed_avg')),
    (('half_averaged_norm_cifar10',),),
  ),
  # Other local steps; μ is the best of those tried without a clip.
  Part((_MNIST_MLP,), 'paper', variants=(('scaffold',), ('fed_prox_0.1',))),
  Part(
    (_MNIST_MLP,),
    'paper',
    ('fed_avg',),
    tuple((f'fed_prox_{mu}',) for mu in MUS_TRIED),
    (0,),
  ),
  # The systems of Sec. 1 and 2; c is of the other half of the data.
  *(
    part
    for data, scale in (
      ('mnist', 'paper_96_rounds'),
      ('cifar10', 'paper_40_rounds'),
    )
    for part in (
      Part((f'mlp_{data}_other_half',), scale, ('fed_avg',), seeds=(0,)),
      Part((f'mlp_{data}_half',), scale, _WITHOUT_NOISE),
      Part((f'mlp_{data}_half',), scale, _DP, _SYSTEMS),
    )
  ),
  Part(('geyer_*',), 'geyer', _DP, (('adaptive',),)),
  # The splits that the paper's figures show.
  Part(
    ('mlp_mnist_iid', 'mlp_cifar10_noniid'), 'paper', _WITHOUT_NOISE, seeds=(0,)
  ),
  Part(
    ('mobilenet_v2_mnist_iid',),
    'reduced_100_rounds',
    _WITHOUT_NOISE,
    seeds=(0,),
  ),
  # With fewer clients, the paper's local steps and its noise on the mean.
  Part((*_MLPS, *_ALEXNETS, _MNIST_ALEXNET), 'paper_steps', _WITHOUT_NOISE),
  Part(
    (*_MLPS, _MNIST_ALEXNET, _CIFAR10_ALEXNET),
    'paper_steps',
    _DP,
    (('noise_of_80',),),
  ),
  *(
    Part((_MNIST_MLP, *_LARGER_ON_MNIST), scale, _DP, (('noise_of_80',),))
    for scale in ('reduced', 'reduced_100_rounds')
  ),
  # The same steps in bfloat16.
  *(
    Part((row,), scale, ('fed_avg',), (('bfloat16',),))
    for row, scale in (
      *_AT_PAPERS_SIZE,
      ('table2_alexnet_cifar10_iid', 'reduced_100_rounds'),
    )
  ),
  # Audits of the perceptron, under both ways to draw cohorts.
  *(
    Part(
      (row,), scale, _DP, (('audited',), ('paper_sampling', 'audited')), (0,)
    )
    for row, scale in (('mlp_embedded_digits', 'demo'), (_MNIST_MLP, 'paper'))
  ),
  # Natural clients, and what needs no files.
  Part(('mlp_mnist_writers',), 'paper'),
  Part(('mlp_embedded_digits',), 'demo'),
  # The other rows, reduced, and the perceptron to compare them with.
  Part(_ALEXNETS, 'reduced', seeds=(0, 1)),
  Part(
    (*_ALEXNETS, *_LARGER_ON_MNIST, _RESNETS_ON_MNIST),
    'reduced',
    _WITHOUT_NOISE,
  ),
  Part(
    (
      *('table2_resnet18_cifar10_*', *_LARGER_ON_MNIST, _CIFAR10_ALEXNET),
      *('table4_resnet18_cifar10_iid', 'mobilenet_v2_cifar10_iid'),
    ),
    'reduced',
    seeds=(0,),
  ),
  *(Part(_MLPS, scale) for scale in ('reduced', 'reduced_paper_cohort')),
  Part((_MNIST_ALEXNET,), 'reduced_paper_cohort', seeds=(0, 1)),
  Part((_CIFAR10_ALEXNET,), 'reduced_paper_cohort', seeds=(0,)),
  # For longer.
  Part(_ALEXNETS, 'reduced_100_rounds'),
  Part(
    (*_MLPS, *_LARGER_ON_MNIST, _RESNETS_ON_MNIST),
    'reduced_100_rounds',
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
    rows = []
    for pattern in part.rows:
      matching = fnmatch.filter(ROWS, pattern)
      if not matching:
        raise ValueError(
          f'`rows` must be among {", ".join(ROWS)}, found {pattern!r}.'
        )
      rows += matching
    for seed, row, variants in itertools.product(
      seeds or part.seeds, rows, part.variants
    ):
      for algorithm in part.algorithms or compared_algorithms(row):
        run = NamedRun(row, part.scale, algorithm, seed, variants)
        for needed in (run.threshold_run, run):
          if needed is not None:
            runs.setdefault(needed.name, needed)
  return list(runs.values())


def plan() -> tuple[dict[str, tuple[str, ...]], pathlib.Path]:
  """Returns the flags of each run that is asked for, and the folder of all."""
  for name in ('row', 'scale', 'algorithm', 'seed'):
    if flags.FLAGS[name].present:
      raise ValueError(f'`{name}` must be given as `{name}s` here.')
  variants = tuple(flags.FLAGS['variants'].value)
  if bool(_ROWS.value) != bool(_SCALES.value):
    raise ValueError('`rows` and `scales` must be given together.')
  if (_ALGORITHMS.value or variants) and not _ROWS.value:
    raise ValueError('`algorithms` and `variants` must be given with `rows`.')
  rows, algorithms = tuple(_ROWS.value), tuple(_ALGORITHMS.value)
  parts = [
    Part(rows, scale, algorithms, (variants,), (0,)) for scale in _SCALES.value
  ]
  folder = pathlib.Path(flags.FLAGS['output_dir'].value or 'runs/reproduction')
  runs = plan_runs(parts or REPRODUCTION, seeds=_SEEDS.value)
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
