"""The paper's published figures and setting, and which runs repeat them."""

import dataclasses
import math
from collections.abc import Sequence

from analysis import results

ALGORITHM_NAMES = {
  'fed_avg': 'FedAvg',
  'ce_fed_avg': 'CE-FedAvg',
  'dp_fed_avg': 'DP-FedAvg',
  'model_clipping': 'Model clipping',
  'model_clipping_fed_avg': 'Model clipping',
}

MODEL_NAMES = {
  'mlp': 'MLP',
  'alexnet': 'AlexNet',
  'mobilenetv2': 'MobileNetV2',
  'resnet18': 'ResNet-18',
}

_DATA_NAMES = {'emnist_digits': 'EMNIST', 'cifar10': 'CIFAR-10'}

# Handwritten digits in place of EMNIST's, named as such in every table.
STAND_INS = {
  'mnist': 'MNIST for EMNIST',
  'embedded_digits': 'sample of MNIST for EMNIST',
}

# The stationary points of Table 1, by c and Q.
TABLE_1 = {
  (math.inf, 1): '0',
  (math.inf, math.inf): '13/9',
  (1, 1): '1/2',
  (1, math.inf): '2/3',
}

# Sec. 4: "client number N = 1920, the number of client participates in each
# round |P_t| = 80, the number of local iterations Q = 32 and the mini-batch
# size 64", and delta = 1e-5.
SETTING = {
  'num_clients': ('N', 1920),
  'clients_per_round': ('P', 80),
  'local_steps': ('Q', 32),
  'batch_size': ('batch', 64),
}
TARGET_DELTA = 1e-5

# Sec. 2.2: used without overlap.
_EMNIST_DIGITS = 240_000

# The round t of Figs. 1 and 2, 0 being the first; the appendix shows others.
FIGURE_ROUND = 16


@dataclasses.dataclass(frozen=True)
class PublishedRow:
  """One row, or one half of a row, of the paper's Tables 2 to 4.

  Attributes:
    table: The number of the paper's table.
    model: As in `MODEL_NAMES`.
    data: 'EMNIST' or 'CIFAR-10'.
    is_iid: Whether the clients' data are IID.
    fed_avg: FedAvg's test accuracy, in percent.
    clipping_drop: FedAvg's accuracy less CE-FedAvg's, in points.
    dp_drop: CE-FedAvg's accuracy less DP-FedAvg's, in points. None in Table 2.
    epsilon: The privacy budget. None in Table 2.
  """

  table: int
  model: str
  data: str
  is_iid: bool
  fed_avg: float
  clipping_drop: float
  dp_drop: float | None = None
  epsilon: float | None = None

  @property
  def client_size(self) -> int:
    """Examples a client (Sec. 2.2 for Table 2, Sec. 4 for Tables 3 and 4)."""
    if self.data == 'CIFAR-10':
      return 500 if self.is_iid else 50
    return 500 if self.table == 2 else 125

  @property
  def num_clients(self) -> int:
    """N: Sec. 4; in Table 2 EMNIST's digits make 480 clients of 500."""
    if self.data == 'EMNIST':
      return _EMNIST_DIGITS // self.client_size
    return SETTING['num_clients'][1]

  @property
  def title(self) -> str:
    """The row in words: model, data and partition."""
    partition = 'IID' if self.is_iid else 'non-IID'
    return f'{self.model}, {self.data}, {partition}'


PUBLISHED_ROWS = (
  PublishedRow(2, 'AlexNet', 'EMNIST', True, 98.20, 0.19),
  PublishedRow(2, 'AlexNet', 'EMNIST', False, 95.60, 3.60),
  PublishedRow(2, 'AlexNet', 'CIFAR-10', True, 66.01, 4.83),
  PublishedRow(2, 'AlexNet', 'CIFAR-10', False, 57.14, 7.30),
  PublishedRow(2, 'ResNet-18', 'EMNIST', True, 99.61, 0.02),
  PublishedRow(2, 'ResNet-18', 'EMNIST', False, 95.43, 0.10),
  PublishedRow(2, 'ResNet-18', 'CIFAR-10', True, 76.36, 0.53),
  PublishedRow(2, 'ResNet-18', 'CIFAR-10', False, 59.46, 1.55),
  PublishedRow(3, 'MLP', 'EMNIST', False, 94.0, 1.84, 0.29, 1.5),
  PublishedRow(3, 'AlexNet', 'EMNIST', False, 96.4, 1.47, 0.16, 1.5),
  PublishedRow(3, 'MobileNetV2', 'EMNIST', False, 97.8, 0.35, 1.62, 1.5),
  PublishedRow(3, 'ResNet-18', 'EMNIST', False, 95.2, -0.15, 3.76, 5.0),
  PublishedRow(4, 'MLP', 'CIFAR-10', True, 51.90, 7.39, 0.90, 1.5),
  PublishedRow(4, 'AlexNet', 'CIFAR-10', True, 66.01, 4.83, -0.18, 1.5),
  PublishedRow(4, 'ResNet-18', 'CIFAR-10', True, 76.36, 0.53, 5.15, 1.5),
)


def algorithm_name(run: results.Run) -> str:
  """The paper's name of the run's algorithm."""
  return ALGORITHM_NAMES.get(run.algorithm, run.algorithm)


def model_name(run: results.Run) -> str:
  """The paper's name of the run's model, or the run's own."""
  key = run.model.lower().replace('_', '').replace('-', '')
  return MODEL_NAMES.get(key, run.model)


def data_name(run: results.Run) -> str:
  """The name of the run's data in tables; a stand-in is called one."""
  names = _DATA_NAMES | STAND_INS
  return names.get(run.task, run.task)


def partition_name(run: results.Run) -> str:
  """'IID', or 'Non-IID' with the name of the partition."""
  if run.is_iid:
    return 'IID'
  if run.partition == 'class_balanced':
    return f'Non-IID ({run.experiment["examples_per_client"]} examples)'
  return f'Non-IID ({run.partition.replace("_", " ")})'


def model_rank(model: str) -> int:
  """Where the paper puts a model in its tables; others come last."""
  names = list(MODEL_NAMES.values())
  return names.index(model) if model in names else len(names)


def setting_title(run: results.Run) -> str:
  """Model, data and partition of a run, for headings."""
  return f'{model_name(run)} on {run.task}, {partition_name(run)}'


def repeats(run: results.Run, row: PublishedRow) -> bool:
  """Whether the run is of the row's model, data (or stand-in) and partition."""
  if model_name(run) != row.model or _paper_data(run) != row.data:
    return False
  if row.is_iid or run.is_iid:
    return row.is_iid and run.is_iid
  skew = 'label_skew' if row.data == 'EMNIST' else 'class_balanced'
  return run.partition == skew


def rows_of_table(table: int) -> list[PublishedRow]:
  """The published rows of one of the Tables 2 to 4."""
  return [row for row in PUBLISHED_ROWS if row.table == table]


def format_delta(delta: float) -> str:
  """A δ as 1e-5 or 2.5e-5."""
  mantissa, exponent = f'{delta:.2e}'.split('e')
  return f'{float(mantissa):g}e{int(exponent)}'


def reductions(runs: Sequence[results.Run], row: PublishedRow) -> str:
  """How comparable runs depart from the paper's setting.

  Args:
    runs: Runs with the same setting, at least one.
    row: The row that they repeat.

  Returns:
    The departures, each with the paper's value in brackets; 'none' where none
    of those that the paper states.
  """
  run = runs[0]
  departures = []
  if run.task in STAND_INS:
    departures.append(f'{run.task} in place of EMNIST')
  of_row = {
    'num_clients': ('N', row.num_clients),
    'examples_per_client': ('examples a client', row.client_size),
  }
  for key, (symbol, value) in (SETTING | of_row).items():
    found = run.experiment.get(key)
    if found is not None and found != value:
      departures.append(f'{symbol} = {found} ({value})')
  test_examples = run.experiment.get('test_examples')
  if test_examples is not None:
    departures.append(f'tested on {test_examples:,} images')
  deltas = sorted(
    {
      float(run.privacy['target_delta'])
      for run in runs
      if run.privacy and run.privacy.get('target_delta') is not None
    }
  )
  departures.extend(
    f'δ = {format_delta(delta)} ({format_delta(TARGET_DELTA)})'
    for delta in deltas
    if delta != TARGET_DELTA
  )
  return ', '.join(departures) or 'none'


def is_full_scale(runs: Sequence[results.Run], row: PublishedRow) -> bool:
  """Whether N, P, Q, batch and the size of clients are all the paper's."""
  # The paper's value stands in brackets beside each that differs.
  return '(' not in reductions(runs, row)


def _paper_data(run: results.Run) -> str | None:
  """The paper's data set that the run's is, or stands for, if any."""
  if run.task in STAND_INS:
    return 'EMNIST'
  return _DATA_NAMES.get(run.task)
