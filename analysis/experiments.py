"""What published runs are called, and the paper's figures.

`results/runs.jsonl` says of each run which row, scale and variants it is. The
settings of rows are those of `tasks.experiments`. Algorithms, rows and variants
that the trainer has no longer are named here; their code is of commit 44967cd3.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tasks import experiments


class Row(NamedTuple):
  """One row, or one half of a row, of Tables 2 to 4, or one beside it.

  Attributes:
    name: What it is called in config.json.
    settings: Those of `tasks.experiments`.
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

# FedAvg, clipping drop, DP drop.
_PUBLISHED: Mapping[str, tuple[float, ...]] = {
  'table2_alexnet_emnist_iid': (98.20, 0.19),
  'table2_alexnet_emnist_noniid': (95.60, 3.60),
  'table2_alexnet_cifar10_iid': (66.01, 4.83),
  'table2_alexnet_cifar10_noniid': (57.14, 7.30),
  'table2_resnet18_emnist_iid': (99.61, 0.02),
  'table2_resnet18_emnist_noniid': (95.43, 0.10),
  'table2_resnet18_cifar10_iid': (76.36, 0.53),
  'table2_resnet18_cifar10_noniid': (59.46, 1.55),
  'table3_mlp_emnist_noniid': (94.0, 1.84, 0.29),
  'table3_alexnet_emnist_noniid': (96.4, 1.47, 0.16),
  'table3_mobilenet_v2_emnist_noniid': (97.8, 0.35, 1.62),
  'table3_resnet18_emnist_noniid': (95.2, -0.15, 3.76),
  'table4_mlp_cifar10_iid': (51.90, 7.39, 0.90),
  'table4_alexnet_cifar10_iid': (66.01, 4.83, -0.18),
  'table4_resnet18_cifar10_iid': (76.36, 0.53, 5.15),
}
# Each row, and those on data that stand in for its own, in the order of the
# paper's tables.
ROWS = tuple(
  Row(name, experiments.ROWS[name], paper, int(paper[len('table')]), *figures)
  for paper, figures in _PUBLISHED.items()
  for name in dict.fromkeys((paper, paper.replace('emnist', 'mnist')))
)
# What no table of the paper has, but its figures.
FIGURE_ROWS = ('mlp_mnist_iid', 'mlp_cifar10_noniid', 'mobilenet_v2_mnist_iid')
# The systems of Sec. 1 and 2, and Geyer's experiment.
SYSTEM_ROWS = (
  *('geyer_100', 'geyer_1000', 'geyer_10000'),
  *(
    f'mlp_{data}_{clients}'
    for data in ('mnist', 'cifar10')
    for clients in ('half', 'other_half', 'disjoint', 'examples')
  ),
)

# DP-FedAvg of a small cohort with the noise on the mean that P = 80 has, and so
# with a large ε.
NOISE_VARIANTS = (
  *('noise_0.147', 'noise_0.0881', 'noise_0.1727'),
  *('noise_0.1912', 'noise_0.1057'),
)
# The algorithms that a variant changes: the run of FedAvg beside a run with
# less noise has no such variant. One that is not here changes all.
VARIANTS: Mapping[str, tuple[str, ...]] = {
  **{name: it.algorithms for name, it in experiments.VARIANTS.items()},
  'expected_norms': ('ce_fed_avg',),
  **dict.fromkeys(
    (*NOISE_VARIANTS, 'threshold', 'smooth', 'smooth_cifar10', 'dp_sgd'),
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
