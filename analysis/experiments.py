"""What published runs are called, and the paper's figures.

`results/runs.jsonl` says of each run which row, scale and variants it is. What
the names mean stands here as plain values, and not in the trainer: published
runs keep their meaning when the trainer changes. Commit 44967cd3 has the code
of the algorithms, rows and variants that the trainer has no longer.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Row(NamedTuple):
  """One row, or one half of a row, of Tables 2 to 4, or one beside it.

  Attributes:
    name: What it is called in config.json.
    settings: Its model, data and split, and its ε or None.
    paper: The paper's row that has the figures: itself, or that whose data
      others stand in for.
    table: The number of the paper's table; None for a row of ours.
    fed_avg: The published test accuracy of FedAvg, in percent.
    clipping_drop: The published accuracy of FedAvg less that of CE-FedAvg, in
      points.
    dp_drop: The published accuracy of CE-FedAvg less that of DP-FedAvg, in
      points; None in Table 2.
  """

  name: str
  settings: Mapping[str, Any]
  paper: str
  table: int | None
  fed_avg: float
  clipping_drop: float
  dp_drop: float | None = None


class Algorithm(NamedTuple):
  """A way to train.

  Attributes:
    title: What it is called.
    clips: What the clipping norm bounds: 'nothing', 'updates', 'models' or
      'gradients'.
    is_private: Whether it adds noise.
  """

  title: str
  clips: str
  is_private: bool = False


MODEL_NAMES = {
  'mlp': 'MLP',
  'alexnet': 'AlexNet',
  'mobilenet_v2': 'MobileNetV2',
  'resnet18': 'ResNet-18',
}
DATA_NAMES = {
  'emnist.npz': 'EMNIST',
  'emnist_digits': 'EMNIST',
  'mnist': 'MNIST',
  'mnist_even': 'half of MNIST',
  'mnist_odd': 'the other half of MNIST',
  'embedded_digits': 'sample of MNIST',
  'cifar10': 'CIFAR-10',
}
ALGORITHMS: Mapping[str, Algorithm] = {
  'fed_avg': Algorithm('FedAvg', 'nothing'),
  'ce_fed_avg': Algorithm('CE-FedAvg', 'updates'),
  'dp_fed_avg': Algorithm('DP-FedAvg', 'updates', is_private=True),
  'model_clipping_fed_avg': Algorithm('Model clipping', 'models'),
  'dp_model_clipping_fed_avg': Algorithm(
    'Model clipping with noise', 'models', is_private=True
  ),
  'local_dp_fed_avg': Algorithm('Local DP', 'updates', is_private=True),
  'dp_steps_fed_avg': Algorithm(
    'Noise in each local step', 'gradients', is_private=True
  ),
}

# The paper's P (Sec. 4).
PAPERS_CLIENTS_PER_ROUND = 80


def _settings(
  model: str, split: tuple[str, str, int], target_epsilon: float | None = None
) -> Mapping[str, Any]:
  task, partition, examples_per_client = split
  return {
    'model': model,
    'task': task,
    'partition': partition,
    'examples_per_client': examples_per_client,
    'target_epsilon': target_epsilon,
  }


# Data, partition, examples of a client (Sec. 2.2 and 4).
_EMNIST_IID = ('emnist.npz', 'iid', 500)
_EMNIST_500 = ('emnist.npz', 'label_skew', 500)
_EMNIST_125 = ('emnist.npz', 'label_skew', 125)
_CIFAR10_IID = ('cifar10', 'class_balanced', 500)
_CIFAR10_50 = ('cifar10', 'class_balanced', 50)
_MNIST_IID = ('mnist', 'iid', 500)
# Model, split and ε; FedAvg, clipping drop, DP drop.
_PUBLISHED: Mapping[str, tuple[tuple[Any, ...], tuple[float, ...]]] = {
  'table2_alexnet_emnist_iid': (('alexnet', _EMNIST_IID), (98.20, 0.19)),
  'table2_alexnet_emnist_noniid': (('alexnet', _EMNIST_500), (95.60, 3.60)),
  'table2_alexnet_cifar10_iid': (('alexnet', _CIFAR10_IID), (66.01, 4.83)),
  'table2_alexnet_cifar10_noniid': (('alexnet', _CIFAR10_50), (57.14, 7.30)),
  'table2_resnet18_emnist_iid': (('resnet18', _EMNIST_IID), (99.61, 0.02)),
  'table2_resnet18_emnist_noniid': (('resnet18', _EMNIST_500), (95.43, 0.10)),
  'table2_resnet18_cifar10_iid': (('resnet18', _CIFAR10_IID), (76.36, 0.53)),
  'table2_resnet18_cifar10_noniid': (('resnet18', _CIFAR10_50), (59.46, 1.55)),
  'table3_mlp_emnist_noniid': (('mlp', _EMNIST_125, 1.5), (94.0, 1.84, 0.29)),
  'table3_alexnet_emnist_noniid': (
    *(('alexnet', _EMNIST_125, 1.5), (96.4, 1.47, 0.16)),
  ),
  'table3_mobilenet_v2_emnist_noniid': (
    *(('mobilenet_v2', _EMNIST_125, 1.5), (97.8, 0.35, 1.62)),
  ),
  'table3_resnet18_emnist_noniid': (
    *(('resnet18', _EMNIST_125, 5.0), (95.2, -0.15, 3.76)),
  ),
  'table4_mlp_cifar10_iid': (('mlp', _CIFAR10_IID, 1.5), (51.90, 7.39, 0.90)),
  'table4_alexnet_cifar10_iid': (
    *(('alexnet', _CIFAR10_IID, 1.5), (66.01, 4.83, -0.18)),
  ),
  'table4_resnet18_cifar10_iid': (
    *(('resnet18', _CIFAR10_IID, 1.5), (76.36, 0.53, 5.15)),
  ),
}


def _rows(paper: str) -> tuple[Row, ...]:
  """A row of the paper, and that on MNIST which stands in for EMNIST."""
  of_paper, figures = _PUBLISHED[paper]
  settings, table = _settings(*of_paper), int(paper[len('table')])
  row = Row(paper, settings, paper, table, *figures)
  if settings['task'] != 'emnist.npz':
    return (row,)
  on_mnist = {**settings, 'task': 'mnist'}
  name = paper.replace('emnist', 'mnist')
  return row, row._replace(name=name, settings=on_mnist)


# In the order of the paper's tables.
ROWS = tuple(row for paper in _PUBLISHED for row in _rows(paper))
# What no table of the paper has, but its figures.
FIGURE_ROWS: Mapping[str, Mapping[str, Any]] = {
  'mlp_mnist_iid': _settings('mlp', _MNIST_IID),
  'mlp_cifar10_noniid': _settings('mlp', _CIFAR10_50),
  'mobilenet_v2_mnist_iid': _settings('mobilenet_v2', _MNIST_IID),
}
# The settings of the rows above, by name.
SETTINGS = {**{row.name: row.settings for row in ROWS}, **FIGURE_ROWS}
# The systems of Sec. 1 and 2, and Geyer's experiment, with c where a row has
# one of its own.
SYSTEM_ROWS: Mapping[str, float | None] = {
  'mlp_mnist_half': 0.373,
  'mlp_mnist_other_half': None,
  'mlp_mnist_disjoint': 1.0,
  'mlp_mnist_examples': 0.5,
  'geyer_100': 0.5,
  'geyer_1000': 0.5,
  'geyer_10000': 0.5,
  'mlp_cifar10_half': 0.88,
  'mlp_cifar10_other_half': None,
  'mlp_cifar10_disjoint': 1.0,
  'mlp_cifar10_examples': 0.5,
}

# DP-FedAvg of a small cohort with the noise on the mean that P = 80 has, and so
# with a large ε.
NOISE_VARIANTS = (
  *('noise_0.147', 'noise_0.0881', 'noise_0.1727'),
  *('noise_0.1912', 'noise_0.1057'),
)
# The algorithms that a variant changes: the run of FedAvg beside a run with
# less noise has no such variant. One that is not here changes all.
_CLIPPED = ('ce_fed_avg', 'dp_fed_avg')
VARIANTS: Mapping[str, tuple[str, ...]] = {
  'matched_steps': ('ce_fed_avg',),
  'expected_norms': ('ce_fed_avg',),
  'half_averaged_norm_mnist': _CLIPPED,
  'half_averaged_norm_cifar10': _CLIPPED,
  'half_model_norm': ('model_clipping_fed_avg', 'dp_model_clipping_fed_avg'),
  'same_threshold': ('model_clipping_fed_avg',),
  'epsilon_5': tuple(name for name, x in ALGORITHMS.items() if x.is_private),
  **dict.fromkeys(
    (
      *(*NOISE_VARIANTS, 'noise_of_80'),
      *('fixed_size', 'pld', 'random_allocation', 'paper_sampling'),
      *('threshold', 'adaptive', 'per_layer', 'smooth', 'smooth_cifar10'),
      *('distributed', 'banded', 'blt', 'audited', 'dp_sgd'),
    ),
    ('dp_fed_avg',),
  ),
}

# The values of settings that the config.json of an older run does not have.
DEFAULTS: Mapping[str, Any] = {
  'server_optimizer': 'sgd',
  'clipping': 'fixed',
  'aggregation': 'plain',
  'mechanism': 'gaussian',
  'compute_dtype': 'float32',
  'local_step': 'sgd',
  'client_rate_decay': 1.0,
}
