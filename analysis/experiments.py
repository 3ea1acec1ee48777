"""What published runs are called, and the paper's figures.

`results/runs.jsonl` says of each run which row, scale and variants it is. What
the names mean stands here as plain values, and not in the trainer: published
runs keep their meaning when the trainer changes. Commit 44967cd3 has the code
of the algorithms, rows and variants that the trainer has no longer.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Row(NamedTuple):
  """One row, or one half of a row, of Tables 2 to 4, or its stand-in on MNIST.

  The figures are the paper's: ε (None in Table 2), the test accuracy of FedAvg
  in percent, and in points what clipping costs (FedAvg less CE-FedAvg) and what
  noise does (CE-FedAvg less DP-FedAvg; None in Table 2). `name` is that of
  config.json.
  """

  name: str
  data: str
  epsilon: float | None
  fed_avg: float
  clipping_drop: float
  dp_drop: float | None

  @property
  def table(self) -> int:
    """The number of the paper's table."""
    return int(self.name[len('table')])


class Algorithm(NamedTuple):
  """A way to train: its title, what c bounds, and whether it adds noise."""

  title: str
  # 'nothing', 'updates', 'models' or 'gradients'.
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


# The paper's data and ε; FedAvg, clipping drop, DP drop.
_PUBLISHED: Mapping[str, tuple[str, float | None, float, float, Any]] = {
  'table2_alexnet_emnist_iid': ('EMNIST', None, 98.20, 0.19, None),
  'table2_alexnet_emnist_noniid': ('EMNIST', None, 95.60, 3.60, None),
  'table2_alexnet_cifar10_iid': ('CIFAR-10', None, 66.01, 4.83, None),
  'table2_alexnet_cifar10_noniid': ('CIFAR-10', None, 57.14, 7.30, None),
  'table2_resnet18_emnist_iid': ('EMNIST', None, 99.61, 0.02, None),
  'table2_resnet18_emnist_noniid': ('EMNIST', None, 95.43, 0.10, None),
  'table2_resnet18_cifar10_iid': ('CIFAR-10', None, 76.36, 0.53, None),
  'table2_resnet18_cifar10_noniid': ('CIFAR-10', None, 59.46, 1.55, None),
  'table3_mlp_emnist_noniid': ('EMNIST', 1.5, 94.0, 1.84, 0.29),
  'table3_alexnet_emnist_noniid': ('EMNIST', 1.5, 96.4, 1.47, 0.16),
  'table3_mobilenet_v2_emnist_noniid': ('EMNIST', 1.5, 97.8, 0.35, 1.62),
  'table3_resnet18_emnist_noniid': ('EMNIST', 5.0, 95.2, -0.15, 3.76),
  'table4_mlp_cifar10_iid': ('CIFAR-10', 1.5, 51.90, 7.39, 0.90),
  'table4_alexnet_cifar10_iid': ('CIFAR-10', 1.5, 66.01, 4.83, -0.18),
  'table4_resnet18_cifar10_iid': ('CIFAR-10', 1.5, 76.36, 0.53, 5.15),
}
# In the order of the paper's tables; MNIST stands in for EMNIST.
ROWS = tuple(
  Row(row, *figures)
  for name, figures in _PUBLISHED.items()
  for row in dict.fromkeys([name, name.replace('_emnist_', '_mnist_')])
)
# Table 4 has two rows of Table 2 again, with DP-FedAvg: they share their runs.
SHARED = {
  f'table4_{row}': f'table2_{row}'
  for row in ('alexnet_cifar10_iid', 'resnet18_cifar10_iid')
}
# What no table of the paper has, but its figures.
FIGURE_ROWS = ('mlp_mnist_iid', 'mlp_cifar10_noniid', 'mobilenet_v2_mnist_iid')
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
