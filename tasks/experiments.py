"""The paper's experiments as data: rows, scales and variants.

A run is a row of the paper, or one of ours, at a scale, with an algorithm and a
seed; a variant changes some settings of it. Values are those of a
`tasks.config.Config`, by name; the source of each stands beside it. A new row,
scale or variant is one entry here.

`python -m tasks.experiments` lists the names. Sections, tables and figures are
those of Zhang et al. (ICML 2022).
"""

import dataclasses
import fractions
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tff_clipping import argument_checks

_Settings = Mapping[str, Any]

ALGORITHMS = (
  *('fed_avg', 'ce_fed_avg', 'dp_fed_avg'),
  'model_clipping_fed_avg',
)
_CLIPS_UPDATES = ('ce_fed_avg', 'dp_fed_avg')
_ALL = ('fed_avg', 'ce_fed_avg', 'dp_fed_avg')


@dataclasses.dataclass(frozen=True)
class Split:
  """Data and how they are split over the clients.

  Attributes:
    task: As in `--task`; also a file of one's own.
    partition: As in `--partition`.
    is_iid: Whether the paper calls it IID.
    num_clients: N at full scale; `None` for as many as the data have.
    examples_per_client: A client's examples; `None` for as many as it has.
  """

  task: str
  partition: str
  is_iid: bool
  num_clients: int | None
  examples_per_client: int | None


@dataclasses.dataclass(frozen=True)
class Row:
  """One row, or one half of a row, of Tables 2 to 4, or one of ours.

  Attributes:
    name: How it is called, such as 'table3_mlp_emnist_noniid'.
    table: The number of the paper's table; `None` for a row of ours.
    model: As in `--model`; also a function of one's own.
    split: The data and how they are split.
    fed_avg: The published test accuracy of FedAvg, in percent.
    clipping_drop: The published accuracy of FedAvg less that of CE-FedAvg, in
      points.
    dp_drop: The published accuracy of CE-FedAvg less that of DP-FedAvg, in
      points; `None` in Table 2.
    epsilon: The privacy budget; `None` in Table 2.
    delta: The delta of the budget.
    clients_per_round: P at full scale.
    stands_for: The name of the paper's row that has these published figures,
      where other data take the place of its own; else `None`.
    client_learning_rate: eta_l; `None` for that of `RATES`.
    clipping_norm: c of what clips updates; `None` for half of the mean norm of
      the updates of the row's own run of FedAvg (Sec. 2.2 and 4), which
      `--clipping_norm_from` takes.
  """

  name: str
  table: int | None
  model: str
  split: Split
  fed_avg: float | None = None
  clipping_drop: float | None = None
  dp_drop: float | None = None
  epsilon: float | None = None
  delta: float = 1e-5  # Sec. 4.
  clients_per_round: int = 80  # Sec. 4.
  stands_for: str | None = None
  client_learning_rate: float | None = None
  clipping_norm: float | None = None

  @property
  def algorithms(self) -> tuple[str, ...]:
    """The algorithms that the row compares."""
    return _ALL if self.epsilon is not None else _ALL[:2]


@dataclasses.dataclass(frozen=True)
class Scale:
  """How large runs are.

  Attributes:
    name: How it is called.
    description: What it is, in a sentence.
    settings: What it sets.
    client_share: The share of a row's N and P.
  """

  name: str
  description: str
  settings: _Settings
  client_share: fractions.Fraction = fractions.Fraction(1)


@dataclasses.dataclass(frozen=True)
class Variant:
  """A change to an experiment.

  Attributes:
    name: How it is called.
    algorithms: Those that have it.
    settings: What it changes.
  """

  name: str
  algorithms: tuple[str, ...]
  settings: _Settings


# Sec. 2.2. The digits of EMNIST; docs/data.md says how to make the file.
_EMNIST_IID = Split('emnist.npz', 'iid', True, 480, 500)
_EMNIST_500 = Split('emnist.npz', 'label_skew', False, 480, 500)
# Sec. 4, with the shares of classes of Sec. 2.2.
_EMNIST_125 = Split('emnist.npz', 'label_skew', False, 1920, 125)
# Sec. 2.2, clients overlap; N of Sec. 4.
_CIFAR10_IID = Split('cifar10', 'class_balanced', True, 1920, 500)
# A skew of quantity, which the paper calls non-IID.
_CIFAR10_50 = Split('cifar10', 'class_balanced', False, 1920, 50)

# Table, model, split; FedAvg, clipping drop, DP drop, epsilon.
_PUBLISHED = {
  'table2_alexnet_emnist_iid': (2, 'alexnet', _EMNIST_IID, 98.20, 0.19),
  'table2_alexnet_emnist_noniid': (2, 'alexnet', _EMNIST_500, 95.60, 3.60),
  'table2_alexnet_cifar10_iid': (2, 'alexnet', _CIFAR10_IID, 66.01, 4.83),
  'table2_alexnet_cifar10_noniid': (2, 'alexnet', _CIFAR10_50, 57.14, 7.30),
  'table2_resnet18_emnist_iid': (2, 'resnet18', _EMNIST_IID, 99.61, 0.02),
  'table2_resnet18_emnist_noniid': (2, 'resnet18', _EMNIST_500, 95.43, 0.10),
  'table2_resnet18_cifar10_iid': (2, 'resnet18', _CIFAR10_IID, 76.36, 0.53),
  'table2_resnet18_cifar10_noniid': (2, 'resnet18', _CIFAR10_50, 59.46, 1.55),
  'table3_mlp_emnist_noniid': (
    *(3, 'mlp', _EMNIST_125),
    *(94.0, 1.84, 0.29, 1.5),
  ),
  'table3_alexnet_emnist_noniid': (
    *(3, 'alexnet', _EMNIST_125),
    *(96.4, 1.47, 0.16, 1.5),
  ),
  'table3_mobilenet_v2_emnist_noniid': (
    *(3, 'mobilenet_v2', _EMNIST_125),
    *(97.8, 0.35, 1.62, 1.5),
  ),
  'table3_resnet18_emnist_noniid': (
    *(3, 'resnet18', _EMNIST_125),
    *(95.2, -0.15, 3.76, 5.0),
  ),
  'table4_mlp_cifar10_iid': (
    *(4, 'mlp', _CIFAR10_IID),
    *(51.90, 7.39, 0.90, 1.5),
  ),
  'table4_alexnet_cifar10_iid': (
    *(4, 'alexnet', _CIFAR10_IID),
    *(66.01, 4.83, -0.18, 1.5),
  ),
  'table4_resnet18_cifar10_iid': (
    *(4, 'resnet18', _CIFAR10_IID),
    *(76.36, 0.53, 5.15, 1.5),
  ),
}
PUBLISHED_ROWS = tuple(Row(name, *row) for name, row in _PUBLISHED.items())

# MNIST, drawn from the same forms, in place of the EMNIST digits.
_ON_MNIST = tuple(
  dataclasses.replace(
    row,
    name=row.name.replace('emnist', 'mnist'),
    split=dataclasses.replace(row.split, task='mnist'),
    stands_for=row.name,
  )
  for row in PUBLISHED_ROWS
  if row.split.task == 'emnist.npz'
)

_OURS = (
  # The smallest row, which needs no files: the 4,000 MNIST digits that a
  # dependency ships, each used once.
  Row(
    'mlp_embedded_digits',
    None,
    'mlp',
    Split('embedded_digits', 'label_skew', False, 500, 8),
    *_PUBLISHED['table3_mlp_emnist_noniid'][3:6],
    epsilon=5.0,
    delta=1e-4,  # Below 1 / N = 0.002.
    # With 500 clients, the noise of fewer would hide what is learnt.
    clients_per_round=100,
    stands_for='table3_mlp_emnist_noniid',
  ),
  # Clients as nature made them: the 539 people who wrote MNIST.
  Row(
    'mlp_mnist_writers',
    None,
    'mlp',
    Split('mnist', 'natural', False, None, None),
    epsilon=1.5,
    clients_per_round=22,  # 1/24 of N, as in the paper.
  ),
  # What the paper's figures show, and no table has (Sec. 2.2).
  *(
    Row(
      f'{model}_mnist_iid',
      None,
      model,
      dataclasses.replace(_EMNIST_IID, task='mnist'),
    )
    for model in ('mlp', 'mobilenet_v2')
  ),
  Row('mlp_cifar10_noniid', None, 'mlp', _CIFAR10_50),
  # The systems of Sec. 1 and 2 at one budget, on half of the data. c is half of
  # the mean norm of FedAvg's updates on the other half, with seed 0; the rates
  # are those of the searches on the whole.
  *(
    Row(
      f'mlp_{data}_half',
      None,
      'mlp',
      dataclasses.replace(split, task=f'{data}_even'),
      epsilon=1.5,
      client_learning_rate=rate,
      clipping_norm=norm,
    )
    for data, split, rate, norm in (
      ('mnist', _EMNIST_125, 0.3, 0.373),
      ('cifar10', _CIFAR10_IID, 0.1, 0.88),
    )
  ),
  *(
    Row(
      f'mlp_{data}_other_half',
      None,
      'mlp',
      dataclasses.replace(split, task=f'{data}_odd'),
      client_learning_rate=rate,
    )
    for data, split, rate in (
      ('mnist', _EMNIST_125, 0.3),
      ('cifar10', _CIFAR10_IID, 0.1),
    )
  ),
  # The clients of Geyer et al. 2017, two shards each, each image used once.
  # Their threshold is the exact median of the norms; with the variant
  # `adaptive`, which starts at c, it is paid for.
  *(
    Row(
      f'geyer_{num_clients}',
      None,
      'mlp',
      Split('mnist', 'shards', False, num_clients, 60_000 // num_clients),
      epsilon=8.0,
      delta=delta,
      clients_per_round=cohort,
      clipping_norm=0.5,
    )
    for num_clients, cohort, delta in (
      (100, 50, 1e-3),
      (1000, 200, 1e-5),
      (10_000, 500, 1e-6),
    )
  ),
  # What Table 4 lacks.
  Row(
    'mobilenet_v2_cifar10_iid', None, 'mobilenet_v2', _CIFAR10_IID, epsilon=1.5
  ),
)

ROWS: Mapping[str, Row] = {
  row.name: row for row in (*PUBLISHED_ROWS, *_ON_MNIST, *_OURS)
}

# eta_l by model and task. The paper does not state it: from small searches on
# FedAvg, whose tables are in results/searches.csv. EMNIST's are those of MNIST.
RATES: Mapping[str, Mapping[str, float]] = {
  'mlp': {'mnist': 0.3, 'cifar10': 0.1, 'embedded_digits': 0.1},
  'alexnet': {'mnist': 0.03, 'cifar10': 0.01},
  'mobilenet_v2': {'mnist': 0.01, 'cifar10': 0.01},
  'resnet18': {'mnist': 0.01, 'cifar10': 0.01},
}

# What all runs have, unless a scale, an algorithm or a variant changes it.
_COMMON = {
  'server_learning_rate': 1.0,  # Not in the paper: FedAvg averages models.
  'sampling': 'fixed_size',  # Sec. 4: a fixed P of N.
}
# Departs from the paper: it draws a fixed P of N and charges that as Poisson
# sampling. With Poisson samples the epsilon holds, and the noise is the same.
_PRIVATE = {
  'accountant': 'rdp',  # Of Theorem 2.
  'sampling': 'poisson',
}

_ROUNDS = (0, 2, 8, 16, 32, 64)  # Figs. 1 and 2, and the appendix.
_PAPER = {
  'local_steps': 32,  # Sec. 4.
  'batch_size': 64,  # Sec. 4.
  'num_rounds': 100,  # Not in the paper, whose figures go to t = 64.
  'update_rounds': _ROUNDS,
  'rounds_per_evaluation': 2,  # An evaluation costs about a round.
}
_REDUCED = {
  'local_steps': 16,  # Half of the paper's.
  'batch_size': 4,  # A sixteenth of the paper's.
  'num_rounds': 20,  # A fifth of that at full scale.
  'update_rounds': _ROUNDS[:4],
  # To evaluate takes a small share of the time.
  'rounds_per_evaluation': 5,
  'test_examples': 2000,
}
_REDUCED_100_ROUNDS = _REDUCED | {
  'num_rounds': 100,
  'update_rounds': _ROUNDS,
  'rounds_per_evaluation': 10,
  'test_examples': 5000,
}
_PAPER_STEPS = _PAPER | {
  'num_rounds': 65,  # The figures go to t = 64.
  'rounds_per_evaluation': 8,
  'rounds_per_checkpoint': 5,  # A round of AlexNet takes 20 seconds.
}
# Clients have 8 digits. The server's rate is of a small search on FedAvg.
_DEMO = {
  'local_steps': 8,
  'batch_size': 8,
  'num_rounds': 60,
  'server_learning_rate': 2.0,
  'sampling': 'poisson',  # The same cohorts for all algorithms.
  'update_rounds': (*_ROUNDS[:5], 59),
  'rounds_per_evaluation': 1,
  'rounds_per_checkpoint': 20,
}
# Ours. Clients of the largest row have 6 digits.
_GEYER = {
  'local_steps': 10,
  'batch_size': 10,
  'num_rounds': 50,
  'rounds_per_evaluation': 5,
}
_EIGHTH = fractions.Fraction(1, 8)

SCALES: Mapping[str, Scale] = {
  scale.name: scale
  for scale in (
    Scale('paper', "The paper's N, P, Q and batch.", _PAPER),
    Scale(
      'paper_96_rounds',
      "The paper's N, P, Q and batch, for four epochs of N / P rounds.",
      _PAPER | {'num_rounds': 96},
    ),
    Scale(
      'paper_40_rounds',
      "The paper's N, P, Q and batch, for 40 rounds.",
      # A round of CIFAR-10 takes seconds.
      _PAPER | {'num_rounds': 40, 'update_rounds': _ROUNDS[:5]},
    ),
    Scale(
      'paper_steps',
      "The paper's Q and batch, by which clients drift apart; fewer clients.",
      _PAPER_STEPS,
      _EIGHTH,
    ),
    Scale(
      'reduced',
      'Few short rounds of few clients, the same for all models.',
      _REDUCED,
      _EIGHTH,
    ),
    Scale(
      'reduced_100_rounds',
      'As reduced, for 100 rounds; with CIFAR-10 accuracy still rises.',
      _REDUCED_100_ROUNDS,
      _EIGHTH,
    ),
    Scale(
      'reduced_paper_cohort',
      "As reduced, with the paper's N and P, by which noise is divided.",
      _REDUCED | {'test_examples': 5000},
    ),
    Scale('geyer', 'Short rounds, for clients of six examples too.', _GEYER),
    Scale('demo', 'That of `make demo`.', _DEMO),
  )
}

# Of FedProx, on seed 0 without a clip.
MUS_TRIED = (0.1, 1.0)

VARIANTS: Mapping[str, Variant] = {
  variant.name: variant
  for variant in (
    # Below the rates of the search; the paper does not state them.
    *(
      Variant(f'client_rate_{rate}', _ALL, {'client_learning_rate': rate})
      for rate in (0.01, 0.03)
    ),
    # Faster, with 8 significant bits.
    Variant('bfloat16', _ALL, {'compute_dtype': 'bfloat16'}),
    # Undoes the shorter steps: a clip at half of the mean norm about halves an
    # update.
    Variant('matched_steps', ('ce_fed_avg',), {'server_learning_rate': 2.0}),
    # Among what the paper says may be clipped too (Sec. 1).
    Variant('scaffold', _ALL, {'local_step': 'scaffold'}),
    # FedProx; mu of the search of Li et al. 2020.
    *(
      Variant(
        f'fed_prox_{mu}', _ALL, {'local_step': 'proximal', 'proximal_mu': mu}
      )
      for mu in MUS_TRIED
    ),
    # That of ResNet-18 in Table 3.
    Variant('epsilon_5', ('dp_fed_avg',), {'target_epsilon': 5.0}),
    # With an eighth of the paper's P, its noise on the mean update.
    Variant('noise_of_80', ('dp_fed_avg',), {'noise_clients_per_round': 80}),
    Variant('fixed_size', ('dp_fed_avg',), {'sampling': 'fixed_size'}),
    # For fixed cohorts it needs less noise.
    Variant('pld', ('dp_fed_avg',), {'accountant': 'pld'}),
    # Each client draws its round of each epoch; 'pld' alone has a proof.
    Variant(
      'random_allocation',
      ('dp_fed_avg',),
      {'sampling': 'random_allocation', 'accountant': 'pld'},
    ),
    # Sec. 4: a fixed P of N, with the noise of Poisson sampling.
    Variant('paper_sampling', ('dp_fed_avg',), {'sampling': 'paper'}),
    # Other clips, from c and to c; and noise in integers at the clients, with
    # half of the bits of a float32.
    Variant('adaptive', ('dp_fed_avg',), {'clipping': 'adaptive'}),
    Variant('per_layer', ('dp_fed_avg',), {'clipping': 'per_layer'}),
    Variant(
      'distributed',
      ('dp_fed_avg',),
      {
        'aggregation': 'distributed',
        'sum_bits': 16,
        'sampling': 'fixed_size',
      },
    ),
    # Groups take turns, no secret: every client once in N / P rounds.
    *(
      Variant(
        mechanism,
        ('dp_fed_avg',),
        {'mechanism': mechanism, 'sampling': 'min_separation'},
      )
      for mechanism in ('banded', 'blt')
    ),
    # About 1,000 more are held out.
    Variant('audited', ('dp_fed_avg',), {'audit_canaries': 1000}),
    # About half of the mean norm of FedAvg's averaged updates, not of the
    # clients', of the MLP's row, seed 0.
    *(
      Variant(
        f'half_averaged_norm_{data}', _CLIPS_UPDATES, {'clipping_norm': norm}
      )
      for data, norm in (('mnist', 0.088), ('cifar10', 0.162))
    ),
    # About half of the norm of the initial MLP: 18.4 for digits, 19.9 for
    # CIFAR-10.
    Variant(
      'half_model_norm', ('model_clipping_fed_avg',), {'clipping_norm': 9.0}
    ),
    # That of CE-FedAvg, of Table 3's MLP on MNIST with seed 0.
    Variant(
      'same_threshold', ('model_clipping_fed_avg',), {'clipping_norm': 0.446}
    ),
  )
}


@dataclasses.dataclass(frozen=True)
class NamedRun:
  """One run of the table.

  Attributes:
    row: What is repeated.
    scale: How large.
    algorithm: One of `ALGORITHMS`.
    seed: The seed of the split, of the initial model and of the cohorts.
    variants: What is changed.
  """

  row: Row
  scale: Scale
  algorithm: str
  seed: int = 0
  variants: tuple[Variant, ...] = ()

  @property
  def name(self) -> str:
    """The name of its folder: data, split, model, scale, algorithm, seed.

    Runs of two rows that have the same settings have the same name.
    """
    split = self.row.split
    size = split.examples_per_client
    return '-'.join(
      (
        _in_names(split.task),
        split.partition if size is None else f'{split.partition}_{size}',
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
  def settings(self) -> dict[str, Any]:
    """The settings; those not said have the default.

    c is among them only where the row or a variant gives it: else it comes from
    `threshold_run`.
    """
    row, share = self.row, self.scale.client_share
    clients = row.split.num_clients
    settings = {
      'task': row.split.task,
      'partition': row.split.partition,
      'num_clients': None if clients is None else round(clients * share),
      'examples_per_client': row.split.examples_per_client,
      'model': row.model,
      'client_learning_rate': row.client_learning_rate or _rate(row),
      'algorithm': self.algorithm,
      'clients_per_round': round(row.clients_per_round * share),
      **_COMMON,
      **self.scale.settings,
      # One for all three: the run can be repeated.
      **dict.fromkeys(('seed', 'model_seed', 'sampling_seed'), self.seed),
    }
    if self.algorithm == 'dp_fed_avg':
      settings |= _PRIVATE
      settings |= {'target_epsilon': row.epsilon, 'target_delta': row.delta}
    if self.algorithm in _CLIPS_UPDATES and row.clipping_norm is not None:
      settings['clipping_norm'] = row.clipping_norm
    for variant in self.variants:
      settings |= variant.settings
    return settings

  @property
  def threshold_run(self) -> 'NamedRun | None':
    """The run of FedAvg whose updates give c; `None` if c is not from a run."""
    if self.algorithm not in _CLIPS_UPDATES or 'clipping_norm' in self.settings:
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
    row: One of `ROWS`.
    scale: One of `SCALES`.
    algorithm: One of `ALGORITHMS`.
    seed: The seed of the split, of the initial model and of the cohorts.
    variants: Some of `VARIANTS`.

  Raises:
    ValueError: If there is no such row, scale, algorithm or variant, or a
      variant is not of the algorithm.
  """
  argument_checks.check_choice('row', row, tuple(ROWS))
  argument_checks.check_choice('scale', scale, tuple(SCALES))
  argument_checks.check_choice('algorithm', algorithm, ALGORITHMS)
  for name in variants:
    argument_checks.check_choice('variants', name, tuple(VARIANTS))
    if algorithm not in VARIANTS[name].algorithms:
      raise ValueError(
        f'`variants` must fit the algorithm, found {name}, which is of '
        f'{" and ".join(VARIANTS[name].algorithms)}, with {algorithm}.'
      )
  return NamedRun(
    ROWS[row],
    SCALES[scale],
    algorithm,
    seed,
    tuple(VARIANTS[name] for name in variants),
  )


def _in_names(text: str) -> str:
  """A name as part of that of a folder: of FILE.py:function, file_function."""
  file, _, function = text.partition(':')
  name = pathlib.PurePath(file).stem
  return f'{name}_{function}' if function else name


def _rate(row: Row) -> float:
  task = row.split.task
  known = 'mnist' if task == 'emnist.npz' else task
  rate = RATES.get(row.model, {}).get(known)
  if rate is None:
    raise ValueError(
      f'`row` must have a `client_learning_rate`, found none in {row.name} and '
      f'none in `RATES` for {row.model} on {task}.'
    )
  return rate


def _print_names() -> None:
  for row in ROWS.values():
    print(f'--row={row.name:34} {row.model} on {row.split.task}')
  for scale in SCALES.values():
    print(f'--scale={scale.name:32} {scale.description}')
  for variant in VARIANTS.values():
    changes = ', '.join(f'{k} {v}' for k, v in variant.settings.items())
    print(f'--variants={variant.name:29} {changes}')


if __name__ == '__main__':
  _print_names()
