"""The paper's experiments as data: rows, scales and variants, with sources.

A run is a row of the paper, or one of ours, at a scale, with an algorithm and a
seed; a variant changes some settings of it. A new row, scale or variant is one
entry here; `named_runs` makes settings, names and an order of them.

Sections, tables and figures are those of Zhang et al. (ICML 2022).
"""

import dataclasses
import fractions
from collections.abc import Mapping
from typing import Any, NamedTuple


class Value(NamedTuple):
  """The value of a setting, and where it comes from in words."""

  value: Any
  source: str


@dataclasses.dataclass(frozen=True)
class Algorithm:
  """A way to train; `tasks.algorithms` has what makes it.

  Attributes:
    title: How it is called in words.
    clips: 'nothing', 'updates' or 'models'.
    is_private: Whether it takes a privacy plan, and adds noise by it.
    settings: What it adds to an experiment, with sources. c, epsilon and delta
      are not here: c is that of `NamedRun.threshold_run`, the others are the
      row's.
  """

  title: str
  clips: str
  is_private: bool = False
  settings: Mapping[str, Value] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Split:
  """Data and how they are split over the clients.

  Attributes:
    task: As in `--task`; also a file of one's own.
    partition: As in `--partition`.
    is_iid: Whether the paper calls it IID.
    num_clients: N at full scale; `None` for as many as the data have.
    examples_per_client: A client's examples; `None` for as many as it has.
    source: Where all that comes from.
  """

  task: str
  partition: str
  is_iid: bool
  num_clients: int | None
  examples_per_client: int | None
  source: str


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
    clipping_norm: c of what clips updates; `None` for that of the row's own run
      of FedAvg, as in the paper, which is an exact figure of the clients' data.
  """

  name: str
  table: int | None
  model: str
  split: Split
  fed_avg: float | None = None
  clipping_drop: float | None = None
  dp_drop: float | None = None
  epsilon: float | None = None
  delta: Value = Value(1e-5, 'Sec. 4')
  clients_per_round: Value = Value(80, 'Sec. 4')
  stands_for: str | None = None
  client_learning_rate: Value | None = None
  clipping_norm: Value | None = None

  @property
  def algorithms(self) -> tuple[str, ...]:
    """The algorithms that the row compares."""
    private = () if self.epsilon is None else ('dp_fed_avg',)
    return ('fed_avg', 'ce_fed_avg', *private)


@dataclasses.dataclass(frozen=True)
class Scale:
  """How large runs are.

  Attributes:
    name: How it is called.
    description: What it is, in a sentence.
    settings: Settings with their sources.
    client_share: The share of a row's N and P.
  """

  name: str
  description: str
  settings: Mapping[str, Value]
  client_share: fractions.Fraction = fractions.Fraction(1)


@dataclasses.dataclass(frozen=True)
class Variant:
  """A change to an experiment.

  Attributes:
    name: How it is called.
    algorithms: Those that have it.
    settings: What it changes, with sources.
  """

  name: str
  algorithms: tuple[str, ...]
  settings: Mapping[str, Value]


ALGORITHMS: Mapping[str, Algorithm] = {
  'fed_avg': Algorithm('FedAvg', 'nothing'),
  'ce_fed_avg': Algorithm('CE-FedAvg', 'updates'),
  'dp_fed_avg': Algorithm(
    'DP-FedAvg',
    'updates',
    is_private=True,
    settings={
      'accountant': Value('rdp', 'the accountant of Theorem 2'),
      # Departs from the paper: it draws a fixed P of N and charges that as
      # Poisson sampling. With Poisson samples the epsilon holds, and the noise
      # is the same.
      'sampling': Value(
        'poisson', 'departs from Sec. 4, so that the epsilon holds'
      ),
    },
  ),
  'model_clipping_fed_avg': Algorithm('Model clipping', 'models'),
}

_EMNIST_IID = Split('emnist_digits', 'iid', True, 480, 500, 'Sec. 2.2')
_EMNIST_500 = Split('emnist_digits', 'label_skew', False, 480, 500, 'Sec. 2.2')
_EMNIST_125 = Split(
  *('emnist_digits', 'label_skew', False, 1920, 125),
  'Sec. 4, with the shares of classes of Sec. 2.2',
)
_CIFAR10_IID = Split(
  *('cifar10', 'class_balanced', True, 1920, 500),
  'Sec. 2.2, clients overlap; N of Sec. 4',
)
# A skew of quantity, which the paper calls non-IID.
_CIFAR10_50 = dataclasses.replace(
  _CIFAR10_IID, is_iid=False, examples_per_client=50
)

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
    split=dataclasses.replace(
      row.split,
      task='mnist',
      source=f'{row.split.source}; MNIST in place of EMNIST',
    ),
    stands_for=row.name,
  )
  for row in PUBLISHED_ROWS
  if row.split.task == 'emnist_digits'
)

# The halves of a data set on which systems are compared: one is the clients',
# and half of the mean norm of FedAvg's updates on the other, with seed 0, is c.
_OTHER_HALFS_NORM = {'mnist': 0.373, 'cifar10': 0.88}
_RATE_OF_SEARCH = {
  data: Value(rate, f'the search mlp_{data} of results/searches.csv')
  for data, rate in (('mnist', 0.3), ('cifar10', 0.1))
}
_HALVED = {'mnist': _EMNIST_125, 'cifar10': _CIFAR10_IID}

_OURS = (
  # The smallest row, which needs no files.
  Row(
    'mlp_embedded_digits',
    None,
    'mlp',
    Split(
      *('embedded_digits', 'label_skew', False, 500, 8),
      'the 4,000 MNIST digits that a dependency ships, each used once',
    ),
    *_PUBLISHED['table3_mlp_emnist_noniid'][3:6],
    epsilon=5.0,
    delta=Value(1e-4, 'below 1 / N = 0.002'),
    clients_per_round=Value(
      100, 'with 500 clients, the noise of fewer would hide what is learnt'
    ),
    stands_for='table3_mlp_emnist_noniid',
  ),
  # Clients as nature made them.
  Row(
    'mlp_mnist_writers',
    None,
    'mlp',
    Split(
      *('mnist', 'natural', False, None, None),
      'a client for each of the 539 people who wrote MNIST; needs writers.npz',
    ),
    epsilon=1.5,
    clients_per_round=Value(22, '1/24 of N, as in the paper'),
  ),
  # What the paper's figures show, and no table has.
  *(
    Row(
      f'{model}_mnist_iid',
      None,
      model,
      dataclasses.replace(
        _EMNIST_IID, task='mnist', source='Sec. 2.2; MNIST in place of EMNIST'
      ),
    )
    for model in ('mlp', 'mobilenet_v2')
  ),
  Row('mlp_cifar10_noniid', None, 'mlp', _CIFAR10_50),
  # The systems of Sec. 1 and 2 at one budget. The clipping norm is found on
  # images that no client has.
  *(
    Row(
      f'mlp_{data}_half',
      None,
      'mlp',
      dataclasses.replace(
        split,
        task=f'{data}_even',
        source=f'{split.source}; half of {data} in place of the whole',
      ),
      epsilon=1.5,
      client_learning_rate=_RATE_OF_SEARCH[data],
      clipping_norm=Value(
        _OTHER_HALFS_NORM[data],
        "half of the mean norm of FedAvg's updates on the other half",
      ),
    )
    for data, split in _HALVED.items()
  ),
  *(
    Row(
      f'mlp_{data}_other_half',
      None,
      'mlp',
      dataclasses.replace(
        split, task=f'{data}_odd', source=f'{split.source}; the other half'
      ),
      client_learning_rate=_RATE_OF_SEARCH[data],
    )
    for data, split in _HALVED.items()
  ),
  # The clients of Geyer et al. 2017, each image used once. Their threshold is
  # the exact median of the norms; with the variant `adaptive` it is paid for.
  *(
    Row(
      f'geyer_{num_clients}',
      None,
      'mlp',
      Split(
        *('mnist', 'shards', False, num_clients, 60_000 // num_clients),
        'Geyer et al. 2017: two shards a client',
      ),
      epsilon=8.0,
      delta=Value(delta, 'Geyer et al. 2017'),
      clients_per_round=Value(cohort, 'ours: noise is divided by it'),
      clipping_norm=Value(0.5, 'ours; where the adaptive norm starts'),
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

# What a run has unless it is said here, of the settings that make it another
# experiment; config.json of an older run may lack them.
DEFAULTS: Mapping[str, Any] = {
  'server_optimizer': 'sgd',
  'clipping': 'fixed',
  'aggregation': 'plain',
  'aggregator': None,
  'mechanism': 'gaussian',
  'compute_dtype': 'float32',
  'local_step': 'sgd',
  'audit_canaries': None,
}

# What all runs have, unless a scale, an algorithm or a variant changes it.
COMMON: Mapping[str, Value] = {
  'server_learning_rate': Value(
    1.0, 'not in the paper; with 1, FedAvg averages models'
  ),
  'sampling': Value('fixed_size', 'Sec. 4: a fixed P of N'),
}

_ROUNDS = (0, 2, 8, 16, 32, 64)
_SHORTER = 'takes a small share of the time'
_PAPER = {
  'local_steps': Value(32, 'Sec. 4'),
  'batch_size': Value(64, 'Sec. 4'),
  'num_rounds': Value(100, 'not in the paper, whose figures go to t = 64'),
  'update_rounds': Value(_ROUNDS, 'Figs. 1 and 2, and the appendix'),
  'rounds_per_evaluation': Value(2, 'an evaluation costs about a round'),
}
_REDUCED = {
  'local_steps': Value(16, "half of the paper's 32"),
  'batch_size': Value(4, "a sixteenth of the paper's 64"),
  'num_rounds': Value(20, 'a fifth of that at full scale'),
  'update_rounds': Value(_ROUNDS[:4], 'those of the figures, as far as T'),
  'rounds_per_evaluation': Value(5, _SHORTER),
  'test_examples': Value(2000, _SHORTER),
}
_REDUCED_100_ROUNDS = _REDUCED | {
  'num_rounds': Value(100, 'as at full scale'),
  'update_rounds': _PAPER['update_rounds'],
  'rounds_per_evaluation': Value(10, _SHORTER),
  'test_examples': Value(5000, _SHORTER),
}
_PAPER_STEPS = _PAPER | {
  'num_rounds': Value(65, 'the figures go to t = 64'),
  'rounds_per_evaluation': Value(8, _SHORTER),
  'rounds_per_checkpoint': Value(5, 'a round of AlexNet takes 20 seconds'),
}
_DEMO = {
  'local_steps': Value(8, 'not 32: these clients have 8 digits'),
  'batch_size': Value(8, 'not 64: these clients have 8 digits'),
  'num_rounds': Value(60, 'a minute for three algorithms'),
  'server_learning_rate': Value(2.0, 'a small search on FedAvg'),
  'sampling': Value('poisson', 'the same cohorts for all algorithms'),
  'update_rounds': Value((*_ROUNDS[:5], 59), 'those of the figures, to T'),
  'rounds_per_evaluation': Value(1, 'an evaluation costs little'),
  'rounds_per_checkpoint': Value(20, 'a checkpoint costs little'),
}
_GEYER = {
  'local_steps': Value(10, 'ours'),
  'batch_size': Value(10, 'ours: clients of the largest row have 6 digits'),
  'num_rounds': Value(50, 'ours'),
  'rounds_per_evaluation': Value(5, _SHORTER),
}
_EIGHTH = fractions.Fraction(1, 8)

SCALES: Mapping[str, Scale] = {
  scale.name: scale
  for scale in (
    Scale('paper', "The paper's N, P, Q and batch.", _PAPER),
    Scale(
      'paper_96_rounds',
      "The paper's N, P, Q and batch, for four epochs of N / P rounds.",
      _PAPER | {'num_rounds': Value(96, '4 N / P: whole epochs')},
    ),
    Scale(
      'paper_40_rounds',
      "The paper's N, P, Q and batch, for 40 rounds.",
      _PAPER
      | {
        'num_rounds': Value(40, 'not 100: a round of CIFAR-10 takes seconds'),
        'update_rounds': Value(_ROUNDS[:5], 'those of the figures, to T'),
      },
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
      _REDUCED | {'test_examples': Value(5000, _SHORTER)},
    ),
    Scale('geyer', 'Short rounds, for clients of six examples too.', _GEYER),
    Scale('demo', 'That of `make demo`.', _DEMO),
  )
}

_RATES_TRIED = (0.01, 0.03)
# Of FedProx, on seed 0 without a clip.
MUS_TRIED = (0.1, 1.0)
# Noise multipliers, and the epsilon and T at which the paper's N and P take
# eight times as much.
PAPERS_NOISE = (
  (0.147, 1.5, 20),
  (0.0881, 5.0, 20),
  (0.1727, 1.5, 65),
  (0.1912, 1.5, 100),
  (0.1057, 5.0, 100),
)
_ALL = ('fed_avg', 'ce_fed_avg', 'dp_fed_avg')


def _variant(name: str, *algorithms: str, **settings: Value) -> Variant:
  return Variant(name, algorithms, settings)


VARIANTS: Mapping[str, Variant] = {
  variant.name: variant
  for variant in (
    *(
      _variant(
        f'client_rate_{rate}',
        *_ALL,
        client_learning_rate=Value(
          rate, 'below that of the search; the paper does not state it'
        ),
      )
      for rate in _RATES_TRIED
    ),
    _variant(
      'bfloat16',
      *_ALL,
      compute_dtype=Value(
        'bfloat16', 'not in the paper; faster, with 8 significant bits'
      ),
    ),
    _variant(
      'matched_steps',
      'ce_fed_avg',
      server_learning_rate=Value(
        2.0,
        'undoes the shorter steps: clipping at half the mean norm about '
        'halves an update',
      ),
    ),
    _variant(
      'scaffold',
      *_ALL,
      local_step=Value(
        'scaffold', 'among what the paper says may be clipped too (Sec. 1)'
      ),
    ),
    *(
      _variant(
        f'fed_prox_{mu}',
        *_ALL,
        local_step=Value('proximal', 'not in the paper: FedProx'),
        proximal_mu=Value(mu, 'one of the search of Li et al. 2020'),
      )
      for mu in MUS_TRIED
    ),
    _variant(
      'epsilon_5',
      'dp_fed_avg',
      target_epsilon=Value(5.0, 'that of ResNet-18 in Table 3'),
    ),
    # Studies of noise, with the large epsilon that it has.
    *(
      _variant(
        f'noise_{noise_multiplier}',
        'dp_fed_avg',
        target_epsilon=Value(None, 'that of its noise multiplier'),
        noise_multiplier=Value(
          noise_multiplier,
          f'an eighth of that of ε = {epsilon:g} and T = {num_rounds}: with '
          "an eighth of the paper's P, its noise on the mean update",
        ),
      )
      for noise_multiplier, epsilon, num_rounds in PAPERS_NOISE
    ),
    _variant(
      'fixed_size',
      'dp_fed_avg',
      sampling=Value(
        'fixed_size', 'a fixed P of N, and the noise that it needs'
      ),
    ),
    _variant(
      'pld',
      'dp_fed_avg',
      accountant=Value(
        'pld', 'not in the paper; for fixed cohorts it needs less noise'
      ),
    ),
    _variant(
      'random_allocation',
      'dp_fed_avg',
      sampling=Value(
        'random_allocation', 'each client draws its round of each epoch'
      ),
      accountant=Value('pld', 'the one that has a proof for it'),
    ),
    _variant(
      'paper_sampling',
      'dp_fed_avg',
      sampling=Value(
        'paper', 'Sec. 4: a fixed P of N, charged as Poisson sampling'
      ),
    ),
    # Other clips, and noise in integers at the clients.
    _variant(
      'adaptive',
      'dp_fed_avg',
      clipping=Value('adaptive', 'not in the paper; starts at c'),
    ),
    _variant(
      'per_layer',
      'dp_fed_avg',
      clipping=Value('per_layer', 'not in the paper; c for all together'),
    ),
    _variant(
      'distributed',
      'dp_fed_avg',
      aggregation=Value('distributed', 'not in the paper'),
      sum_bits=Value(16, 'half of what a float32 has'),
      sampling=Value('fixed_size', 'what its shares of noise are proved for'),
    ),
    *(
      _variant(
        mechanism,
        'dp_fed_avg',
        mechanism=Value(
          mechanism, 'not in the paper; noise correlated between rounds'
        ),
        sampling=Value('min_separation', 'groups take turns, no secret'),
        min_separation=Value(24, 'N / P of the paper; of other rows theirs'),
      )
      for mechanism in ('banded', 'blt')
    ),
    _variant(
      'audited',
      'dp_fed_avg',
      audit_canaries=Value(
        1000, 'not in the paper; about 1,000 more are held out'
      ),
    ),
    *(
      _variant(
        f'half_averaged_norm_{data}',
        *('ce_fed_avg', 'dp_fed_avg'),
        clipping_norm=Value(
          norm,
          "about half of the mean norm of FedAvg's averaged updates, not the "
          f"clients': of the MLP's row on {title}, seed 0",
        ),
      )
      for data, title, norm in (
        ('mnist', 'MNIST', 0.088),
        ('cifar10', 'CIFAR-10', 0.162),
      )
    ),
    _variant(
      'half_model_norm',
      'model_clipping_fed_avg',
      clipping_norm=Value(
        9.0,
        'about half of the norm of the initial MLP: 18.4 for digits, 19.9 for '
        'CIFAR-10',
      ),
    ),
    _variant(
      'same_threshold',
      'model_clipping_fed_avg',
      clipping_norm=Value(
        0.446, "that of CE-FedAvg, of Table 3's MLP on MNIST with seed 0"
      ),
    ),
  )
}
