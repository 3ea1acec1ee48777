"""The paper's experiments as data: rows, scales and variants.

A run is a row of the paper, or one of ours, at a scale, with an algorithm and a
seed; a variant changes some settings of it. Values are those of a
`tasks.config.Config`, by name; the source of each stands beside it. A new row,
scale or variant is one entry here.

`python -m tasks.experiments` lists the names. Sections, tables and figures are
those of Zhang et al. (ICML 2022), whose published figures are in
`analysis.experiments`.
"""

import dataclasses
import fractions
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from tff_clipping import argument_checks

_Settings = Mapping[str, Any]

ALGORITHMS = (
  *('fed_avg', 'ce_fed_avg', 'dp_fed_avg'),
  'model_clipping_fed_avg',
)
_ALL = ALGORITHMS[:3]
_CLIPS_UPDATES = ('ce_fed_avg', 'dp_fed_avg')
_DP = ('dp_fed_avg',)

# eta_l by model and data. The paper does not state it: from small searches on
# FedAvg, whose tables are in results/searches.csv. EMNIST's are those of MNIST.
_RATES: Mapping[str, Mapping[str, float]] = {
  'mlp': {'mnist': 0.3, 'cifar10': 0.1, 'embedded_digits': 0.1},
  'alexnet': {'mnist': 0.03, 'cifar10': 0.01},
  'mobilenet_v2': {'mnist': 0.01, 'cifar10': 0.01},
  'resnet18': {'mnist': 0.01, 'cifar10': 0.003},
}


def _split(
  task: str,
  partition: str,
  num_clients: int | None = None,
  examples_per_client: int | None = None,
) -> _Settings:
  """Data, and how they are split over clients; N is that at full scale."""
  return {
    'task': task,
    'partition': partition,
    'num_clients': num_clients,
    'examples_per_client': examples_per_client,
  }


def _row(
  model: str,
  split: _Settings,
  target_epsilon: float | None = None,
  **others: Any,
) -> _Settings:
  """The settings of a row: a model, data, and what differs from the paper.

  P is that at full scale. The budget is for DP-FedAvg, which a row without one
  does not have. c is of what clips updates; without it, it is half of the mean
  norm of the updates of the row's own run of FedAvg (Sec. 2.2 and 4), which
  `--clipping_norm_from` takes.
  """
  data = split['task'].replace('emnist.npz', 'mnist')
  return {
    **split,
    'model': model,
    'clients_per_round': 80,  # Sec. 4.
    'target_epsilon': target_epsilon,
    'target_delta': 1e-5,  # Sec. 4.
    'client_learning_rate': _RATES.get(model, {}).get(data),
    **others,
  }


class Scale(NamedTuple):
  """How large runs are: what it sets, and the share of a row's N and P."""

  description: str
  settings: _Settings
  client_share: fractions.Fraction = fractions.Fraction(1)


class Variant(NamedTuple):
  """A change to the settings of the algorithms that have it."""

  algorithms: tuple[str, ...]
  settings: _Settings


# Sec. 2.2. The digits of EMNIST; docs/data.md says how to make the file.
_EMNIST_IID = _split('emnist.npz', 'iid', 480, 500)
_EMNIST_500 = _split('emnist.npz', 'label_skew', 480, 500)
# Sec. 4, with the shares of classes of Sec. 2.2.
_EMNIST_125 = _split('emnist.npz', 'label_skew', 1920, 125)
# Sec. 2.2, clients overlap; N of Sec. 4.
_CIFAR10_IID = _split('cifar10', 'class_balanced', 1920, 500)
# A skew of quantity, which the paper calls non-IID.
_CIFAR10_50 = _split('cifar10', 'class_balanced', 1920, 50)

PUBLISHED_ROWS: Mapping[str, _Settings] = {
  'table2_alexnet_emnist_iid': _row('alexnet', _EMNIST_IID),
  'table2_alexnet_emnist_noniid': _row('alexnet', _EMNIST_500),
  'table2_alexnet_cifar10_iid': _row('alexnet', _CIFAR10_IID),
  'table2_alexnet_cifar10_noniid': _row('alexnet', _CIFAR10_50),
  'table2_resnet18_emnist_iid': _row('resnet18', _EMNIST_IID),
  'table2_resnet18_emnist_noniid': _row('resnet18', _EMNIST_500),
  'table2_resnet18_cifar10_iid': _row('resnet18', _CIFAR10_IID),
  'table2_resnet18_cifar10_noniid': _row('resnet18', _CIFAR10_50),
  'table3_mlp_emnist_noniid': _row('mlp', _EMNIST_125, 1.5),
  'table3_alexnet_emnist_noniid': _row('alexnet', _EMNIST_125, 1.5),
  'table3_mobilenet_v2_emnist_noniid': _row('mobilenet_v2', _EMNIST_125, 1.5),
  'table3_resnet18_emnist_noniid': _row('resnet18', _EMNIST_125, 5.0),
  'table4_mlp_cifar10_iid': _row('mlp', _CIFAR10_IID, 1.5),
  'table4_alexnet_cifar10_iid': _row('alexnet', _CIFAR10_IID, 1.5),
  'table4_resnet18_cifar10_iid': _row('resnet18', _CIFAR10_IID, 1.5),
}

# MNIST, drawn from the same forms, in place of the EMNIST digits.
_ON_MNIST = {
  name.replace('emnist', 'mnist'): {**row, 'task': 'mnist'}
  for name, row in PUBLISHED_ROWS.items()
  if row['task'] == 'emnist.npz'
}

_OURS = {
  # The smallest row, which needs no files: the 4,000 MNIST digits that a
  # dependency ships, each used once.
  'mlp_embedded_digits': _row(
    'mlp',
    _split('embedded_digits', 'label_skew', 500, 8),
    5.0,
    target_delta=1e-4,  # Below 1 / N = 0.002.
    # With 500 clients, the noise of fewer would hide what is learnt.
    clients_per_round=100,
  ),
  # Clients as nature made them: the 539 people who wrote MNIST.
  'mlp_mnist_writers': _row(
    'mlp',
    _split('mnist', 'natural'),
    1.5,
    clients_per_round=22,  # 1/24 of N, as in the paper.
  ),
  # What the paper's figures show, and no table has (Sec. 2.2).
  **{
    f'{model}_mnist_iid': _row(model, {**_EMNIST_IID, 'task': 'mnist'})
    for model in ('mlp', 'mobilenet_v2')
  },
  'mlp_cifar10_noniid': _row('mlp', _CIFAR10_50),
  # The systems of Sec. 1 and 2 at one budget, on half of the data. c is half of
  # the mean norm of FedAvg's updates on the other half, with seed 0; the rates
  # are those of the searches on the whole.
  'mlp_mnist_half': _row(
    'mlp',
    {**_EMNIST_125, 'task': 'mnist_even'},
    1.5,
    client_learning_rate=0.3,
    clipping_norm=0.373,
  ),
  'mlp_mnist_other_half': _row(
    'mlp', {**_EMNIST_125, 'task': 'mnist_odd'}, client_learning_rate=0.3
  ),
  'mlp_cifar10_half': _row(
    'mlp',
    {**_CIFAR10_IID, 'task': 'cifar10_even'},
    1.5,
    client_learning_rate=0.1,
    clipping_norm=0.88,
  ),
  'mlp_cifar10_other_half': _row(
    'mlp', {**_CIFAR10_IID, 'task': 'cifar10_odd'}, client_learning_rate=0.1
  ),
  # What Table 4 lacks.
  'mobilenet_v2_cifar10_iid': _row('mobilenet_v2', _CIFAR10_IID, 1.5),
}

ROWS: Mapping[str, _Settings] = {**PUBLISHED_ROWS, **_ON_MNIST, **_OURS}

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
_EIGHTH = fractions.Fraction(1, 8)

SCALES: Mapping[str, Scale] = {
  'paper': Scale("The paper's N, P, Q and batch.", _PAPER),
  'paper_96_rounds': Scale(
    "The paper's N, P, Q and batch, for four epochs of N / P rounds.",
    _PAPER | {'num_rounds': 96},
  ),
  'paper_40_rounds': Scale(
    "The paper's N, P, Q and batch, for 40 rounds.",
    # A round of CIFAR-10 takes seconds.
    _PAPER | {'num_rounds': 40, 'update_rounds': _ROUNDS[:5]},
  ),
  'paper_steps': Scale(
    "The paper's Q and batch, by which clients drift apart; fewer clients.",
    _PAPER_STEPS,
    _EIGHTH,
  ),
  'reduced': Scale(
    'Few short rounds of few clients, the same for all models.',
    _REDUCED,
    _EIGHTH,
  ),
  'reduced_100_rounds': Scale(
    'As reduced, for 100 rounds; with CIFAR-10 accuracy still rises.',
    _REDUCED_100_ROUNDS,
    _EIGHTH,
  ),
  'reduced_paper_cohort': Scale(
    "As reduced, with the paper's N and P, by which noise is divided.",
    _REDUCED | {'test_examples': 5000},
  ),
  'demo': Scale('That of `make demo`.', _DEMO),
}

VARIANTS: Mapping[str, Variant] = {
  # Below the rates of the search; the paper does not state them.
  'client_rate_0.01': Variant(_ALL, {'client_learning_rate': 0.01}),
  'client_rate_0.03': Variant(_ALL, {'client_learning_rate': 0.03}),
  # Of the second search of docs/related.md.
  'client_rate_0.3': Variant(_ALL, {'client_learning_rate': 0.3}),
  # Faster, with 8 significant bits.
  'bfloat16': Variant(_ALL, {'compute_dtype': 'bfloat16'}),
  # Undoes the shorter steps: a clip at half of the mean norm about halves an
  # update.
  'matched_steps': Variant(('ce_fed_avg',), {'server_learning_rate': 2.0}),
  # Among what the paper says may be clipped too (Sec. 1).
  'scaffold': Variant(_ALL, {'local_step': 'scaffold'}),
  # FedProx; mu of the search of Li et al. 2020, tried on seed 0 without a clip.
  **{
    f'fed_prox_{mu}': Variant(
      _ALL, {'local_step': 'proximal', 'proximal_mu': mu}
    )
    for mu in (0.1, 1.0)
  },
  # That of ResNet-18 in Table 3.
  'epsilon_5': Variant(_DP, {'target_epsilon': 5.0}),
  # With an eighth of the paper's P, its noise on the mean update.
  'noise_of_80': Variant(_DP, {'noise_clients_per_round': 80}),
  'fixed_size': Variant(_DP, {'sampling': 'fixed_size'}),
  # For fixed cohorts it needs less noise.
  'pld': Variant(_DP, {'accountant': 'pld'}),
  # Each client draws its round of each epoch; 'pld' alone has a proof.
  'random_allocation': Variant(
    _DP, {'sampling': 'random_allocation', 'accountant': 'pld'}
  ),
  # Sec. 4: a fixed P of N, with the noise of Poisson sampling.
  'paper_sampling': Variant(_DP, {'sampling': 'paper'}),
  # Other clips, from c and to c; and noise in integers at the clients, with
  # half of the bits of a float32.
  'adaptive': Variant(_DP, {'clipping': 'adaptive'}),
  'per_layer': Variant(_DP, {'clipping': 'per_layer'}),
  'distributed': Variant(
    _DP,
    {'aggregation': 'distributed', 'sum_bits': 16, 'sampling': 'fixed_size'},
  ),
  # Groups take turns, no secret: every client once in N / P rounds.
  **{
    mechanism: Variant(
      _DP, {'mechanism': mechanism, 'sampling': 'min_separation'}
    )
    for mechanism in ('banded', 'blt')
  },
  # About 1,000 more are held out.
  'audited': Variant(_DP, {'audit_canaries': 1000}),
  # About half of the mean norm of FedAvg's averaged updates, not of the
  # clients', of the MLP's row, seed 0.
  'half_averaged_norm_mnist': Variant(_CLIPS_UPDATES, {'clipping_norm': 0.088}),
  'half_averaged_norm_cifar10': Variant(
    _CLIPS_UPDATES, {'clipping_norm': 0.162}
  ),
  # About half of the norm of the initial MLP: 18.4 for digits, 19.9 for
  # CIFAR-10.
  'half_model_norm': Variant(
    ('model_clipping_fed_avg',), {'clipping_norm': 9.0}
  ),
  # That of CE-FedAvg, of Table 3's MLP on MNIST with seed 0.
  'same_threshold': Variant(
    ('model_clipping_fed_avg',), {'clipping_norm': 0.446}
  ),
}


def compared_algorithms(row: str) -> tuple[str, ...]:
  """Returns the algorithms that a row compares."""
  return _ALL if ROWS[row]['target_epsilon'] is not None else _ALL[:2]


@dataclasses.dataclass(frozen=True)
class NamedRun:
  """One run of the table, by its names.

  Attributes:
    row: What is repeated, one of `ROWS`.
    scale: How large, one of `SCALES`.
    algorithm: One of `ALGORITHMS`.
    seed: The seed of the split, of the initial model and of the cohorts.
    variants: What is changed, some of `VARIANTS`.

  Raises:
    ValueError: If there is no such row, scale, algorithm or variant, a variant
      is not of the algorithm, or two of them set one setting otherwise.
  """

  row: str
  scale: str
  algorithm: str
  seed: int = 0
  variants: tuple[str, ...] = ()

  def __post_init__(self):
    object.__setattr__(self, 'variants', tuple(self.variants))
    argument_checks.check_choice('row', self.row, tuple(ROWS))
    argument_checks.check_choice('scale', self.scale, tuple(SCALES))
    argument_checks.check_choice('algorithm', self.algorithm, ALGORITHMS)
    changed: dict[str, Any] = {}
    for name in self.variants:
      argument_checks.check_choice('variants', name, tuple(VARIANTS))
      if self.algorithm not in VARIANTS[name].algorithms:
        raise ValueError(
          f'`variants` must fit the algorithm, found {name}, which is of '
          f'{" and ".join(VARIANTS[name].algorithms)}, with {self.algorithm}.'
        )
      for setting, value in VARIANTS[name].settings.items():
        if changed.setdefault(setting, value) != value:
          raise ValueError(
            f'`variants` must agree on `{setting}`, found {changed[setting]} '
            f'and {value} in {", ".join(self.variants)}.'
          )

  @property
  def name(self) -> str:
    """The name of its folder: data, split, model, scale, algorithm, seed.

    Runs of two rows that have the same settings have the same name.
    """
    row = ROWS[self.row]
    size = row['examples_per_client']
    return '-'.join(
      (
        _in_names(row['task']),
        row['partition'] if size is None else f'{row["partition"]}_{size}',
        _in_names(row['model']),
        *(self.scale, self.algorithm, *self.variants, f'seed{self.seed}'),
      )
    )

  @property
  def settings(self) -> dict[str, Any]:
    """The settings; those not said have the default.

    c is among them only where the row or a variant gives it: else it comes from
    `threshold_run`.
    """
    scale = SCALES[self.scale]
    settings = {
      **_COMMON,
      **ROWS[self.row],
      **scale.settings,
      'algorithm': self.algorithm,
      # One for all three: the run can be repeated.
      **dict.fromkeys(('seed', 'model_seed', 'sampling_seed'), self.seed),
    }
    for name in ('num_clients', 'clients_per_round'):
      if settings[name] is not None:
        settings[name] = round(settings[name] * scale.client_share)
    if self.algorithm == 'dp_fed_avg':
      settings |= _PRIVATE
    else:
      del settings['target_epsilon'], settings['target_delta']
    if self.algorithm not in _CLIPS_UPDATES:
      settings.pop('clipping_norm', None)
    for name in self.variants:
      settings |= VARIANTS[name].settings
    return settings

  @property
  def threshold_run(self) -> 'NamedRun | None':
    """The run of FedAvg whose updates give c; `None` if c is not from a run.

    It has the variants that FedAvg has.
    """
    if self.algorithm not in _CLIPS_UPDATES or 'clipping_norm' in self.settings:
      return None
    return dataclasses.replace(
      self,
      algorithm='fed_avg',
      variants=tuple(
        name for name in self.variants if 'fed_avg' in VARIANTS[name].algorithms
      ),
    )


def _in_names(text: str) -> str:
  """A name as part of that of a folder: of FILE.py:function, file_function."""
  file, _, function = text.partition(':')
  name = pathlib.PurePath(file).stem
  return f'{name}_{function}' if function else name


def _print_names() -> None:
  for name, row in ROWS.items():
    print(f'--row={name:34} {row["model"]} on {row["task"]}')
  for name, scale in SCALES.items():
    print(f'--scale={name:32} {scale.description}')
  for name, variant in VARIANTS.items():
    changes = ', '.join(f'{k} {v}' for k, v in variant.settings.items())
    print(f'--variants={name:29} {changes}')


if __name__ == '__main__':
  _print_names()
