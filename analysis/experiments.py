"""The experiments whose runs are published, as plain values.

`results/runs.jsonl` says of each run which row, scale and variants it is. What
the names mean is here: the paper's rows with their figures, the algorithms and
which of them a variant changes. Names that are not here stay as they are.

The program that made a run may have gone; its commit is in the run.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple


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


@dataclasses.dataclass(frozen=True)
class Row:
  """One row, or one half of a row, of Tables 2 to 4, or one beside it.

  Attributes:
    name: What it is called in config.json.
    table: The number of the paper's table; None for a row of ours.
    model: The name of the model.
    task: The data.
    partition: How the data are split over the clients.
    examples_per_client: The examples of each client.
    num_clients: The paper's N.
    fed_avg: The published test accuracy of FedAvg, in percent; None where the
      paper has no such row, and so below.
    clipping_drop: The published accuracy of FedAvg less that of CE-FedAvg, in
      points.
    dp_drop: The published accuracy of CE-FedAvg less that of DP-FedAvg, in
      points; None in Table 2.
    epsilon: The privacy budget; None in Table 2.
    stands_for: The paper's row that has these published figures, where other
      data take the place of its own; else None.
  """

  name: str
  table: int | None
  model: str
  task: str
  partition: str
  examples_per_client: int
  num_clients: int
  fed_avg: float | None = None
  clipping_drop: float | None = None
  dp_drop: float | None = None
  epsilon: float | None = None
  stands_for: str | None = None


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
  # Published; their code is of commit 44967cd3.
  'dp_model_clipping_fed_avg': Algorithm(
    'Model clipping with noise', 'models', is_private=True
  ),
  'local_dp_fed_avg': Algorithm('Local DP', 'updates', is_private=True),
  'dp_steps_fed_avg': Algorithm(
    'Noise in each local step', 'gradients', is_private=True
  ),
}

# The paper's P, Q and batch (Sec. 4).
PAPERS_CLIENTS_PER_ROUND = 80
PAPERS_LOCAL_STEPS = 32
PAPERS_BATCH_SIZE = 64

# Task, partition, examples a client, N (Sec. 2.2 and 4).
_EMNIST_IID = ('emnist.npz', 'iid', 500, 480)
_EMNIST_500 = ('emnist.npz', 'label_skew', 500, 480)
_EMNIST_125 = ('emnist.npz', 'label_skew', 125, 1920)
_CIFAR10_IID = ('cifar10', 'class_balanced', 500, 1920)
_CIFAR10_50 = ('cifar10', 'class_balanced', 50, 1920)

# The name, table and model of a row; FedAvg, clipping drop, DP drop, epsilon.
_TABLE_2 = (
  Row('table2_alexnet_emnist_iid', 2, 'alexnet', *_EMNIST_IID, 98.20, 0.19),
  Row('table2_alexnet_emnist_noniid', 2, 'alexnet', *_EMNIST_500, 95.60, 3.60),
  Row('table2_alexnet_cifar10_iid', 2, 'alexnet', *_CIFAR10_IID, 66.01, 4.83),
  Row('table2_alexnet_cifar10_noniid', 2, 'alexnet', *_CIFAR10_50, 57.14, 7.30),
  Row('table2_resnet18_emnist_iid', 2, 'resnet18', *_EMNIST_IID, 99.61, 0.02),
  Row(
    *('table2_resnet18_emnist_noniid', 2, 'resnet18', *_EMNIST_500),
    *(95.43, 0.10),
  ),
  Row('table2_resnet18_cifar10_iid', 2, 'resnet18', *_CIFAR10_IID, 76.36, 0.53),
  Row(
    *('table2_resnet18_cifar10_noniid', 2, 'resnet18', *_CIFAR10_50),
    *(59.46, 1.55),
  ),
)
_TABLE_3 = (
  Row(
    *('table3_mlp_emnist_noniid', 3, 'mlp', *_EMNIST_125),
    *(94.0, 1.84, 0.29, 1.5),
  ),
  Row(
    *('table3_alexnet_emnist_noniid', 3, 'alexnet', *_EMNIST_125),
    *(96.4, 1.47, 0.16, 1.5),
  ),
  Row(
    *('table3_mobilenet_v2_emnist_noniid', 3, 'mobilenet_v2', *_EMNIST_125),
    *(97.8, 0.35, 1.62, 1.5),
  ),
  Row(
    *('table3_resnet18_emnist_noniid', 3, 'resnet18', *_EMNIST_125),
    *(95.2, -0.15, 3.76, 5.0),
  ),
)
_TABLE_4 = (
  Row(
    *('table4_mlp_cifar10_iid', 4, 'mlp', *_CIFAR10_IID),
    *(51.90, 7.39, 0.90, 1.5),
  ),
  Row(
    *('table4_alexnet_cifar10_iid', 4, 'alexnet', *_CIFAR10_IID),
    *(66.01, 4.83, -0.18, 1.5),
  ),
  Row(
    *('table4_resnet18_cifar10_iid', 4, 'resnet18', *_CIFAR10_IID),
    *(76.36, 0.53, 5.15, 1.5),
  ),
)
PUBLISHED_ROWS = (*_TABLE_2, *_TABLE_3, *_TABLE_4)


def _stand_ins(row: Row) -> tuple[Row, ...]:
  """The rows that have a row's published figures: it, MNIST for EMNIST."""
  if row.task != 'emnist.npz':
    return (row,)
  on_mnist = dataclasses.replace(
    row,
    name=row.name.replace('emnist', 'mnist'),
    task='mnist',
    stands_for=row.name,
  )
  if row.name != 'table3_mlp_emnist_noniid':
    return row, on_mnist
  embedded = dataclasses.replace(
    row,
    name='mlp_embedded_digits',
    table=None,
    task='embedded_digits',
    examples_per_client=8,
    num_clients=500,
    epsilon=5.0,
    stands_for=row.name,
  )
  return row, on_mnist, embedded


# Rows with published figures, their own or those of what they stand for, in the
# order of the paper's tables.
ROWS = tuple(each for row in PUBLISHED_ROWS for each in _stand_ins(row))

# What no table of the paper has, but its figures.
FIGURE_ROWS = (
  Row('mlp_mnist_iid', None, 'mlp', 'mnist', *_EMNIST_IID[1:]),
  Row('mlp_cifar10_noniid', None, 'mlp', *_CIFAR10_50),
  Row(
    'mobilenet_v2_mnist_iid', None, 'mobilenet_v2', 'mnist', *_EMNIST_IID[1:]
  ),
)

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
  'noise_0.147',
  'noise_0.0881',
  'noise_0.1727',
  'noise_0.1912',
  'noise_0.1057',
)

# The algorithms that a variant changes, where it does not change all: the run
# of FedAvg beside a run with less noise has no such variant. One that is not
# here changes all.
_CLIPPED = ('ce_fed_avg', 'dp_fed_avg')
_PRIVATE = tuple(name for name, x in ALGORITHMS.items() if x.is_private)
VARIANTS: Mapping[str, tuple[str, ...]] = {
  'matched_steps': ('ce_fed_avg',),
  'expected_norms': ('ce_fed_avg',),
  'half_averaged_norm_mnist': _CLIPPED,
  'half_averaged_norm_cifar10': _CLIPPED,
  'half_model_norm': ('model_clipping_fed_avg', 'dp_model_clipping_fed_avg'),
  'same_threshold': ('model_clipping_fed_avg',),
  'epsilon_5': _PRIVATE,
  **dict.fromkeys(
    (
      *NOISE_VARIANTS,
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
