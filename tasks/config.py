"""The settings of a run: a field is a flag, with its help and its check.

A `Config` is plain values, checked one by one; from Python, a function of a
user's own may stand in place of its name. Which values go together,
`tasks.algorithms` says. Nothing here imports TensorFlow.
"""

import dataclasses
import functools
import os
import typing
from collections.abc import Callable, Mapping
from typing import Any

from absl import flags

from tasks import named_functions
from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import slack

# The groups of flags in --help, each with its first; others follow.
GROUPS = {
  'data': 'task',
  'model': 'model',
  "clients' work": 'algorithm',
  'clipping': 'clipping',
  'privacy': 'target_epsilon',
  'run': 'output_dir',
  'cluster': 'runtime',
}
# Of a count: far above any that can be run, and below what TensorFlow takes.
_LARGEST = 10**9
_FOLDERS = ('data_dir', 'cache_dir', 'output_dir', 'clipping_norm_from')
# Where a run is executed; the same run may go on elsewhere.
OF_THE_MACHINE = (*_FOLDERS, 'runtime', 'num_workers')

_Check = Callable[[str, Any], Any]
# A function, or a loss or metric of Keras; on the command line its name.
_Function = str | Callable


def _check_text(name: str, value: Any) -> None:
  if not isinstance(value, str):
    raise TypeError(f'`{name}` must be a string, found {value!r}.')


def _check_function(name: str, value: Any) -> None:
  if not isinstance(value, str) and not callable(value):
    raise TypeError(
      f'`{name}` must be a function or its name, found {value!r}.'
    )


def _check_truth(name: str, value: Any) -> None:
  if not isinstance(value, bool):
    raise TypeError(f'`{name}` must be True or False, found {value!r}.')


def _setting(
  text: str,
  default: Any = None,
  check: _Check = _check_text,
  *,
  required: bool = False,
) -> Any:
  """Returns a field; `check` is of each value of a tuple."""
  return dataclasses.field(
    default=default,
    metadata={'help': text, 'check': check, 'required': required},
  )


def _at_least(smallest: int, largest: int = _LARGEST) -> _Check:
  return lambda name, value: argument_checks.check_integer(
    name, value, at_least=smallest, at_most=largest
  )


def _one_of(*choices: str) -> _Check:
  return lambda name, value: argument_checks.check_choice(name, value, choices)


_positive = argument_checks.check_positive
_probability = argument_checks.check_probability
_seed = argument_checks.check_seed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
  """The settings of a run; `None` is 'not given'.

  Raises:
    TypeError: If a value is of the wrong kind.
    ValueError: If it is out of range.
  """

  task: str = _setting(
    'The data: a name of docs/data.md, FILE.npz, FILE.csv, FILE.py:function '
    'or module:function.',
    required=True,
  )
  partition: str = _setting(
    'The split over clients: natural (by those of the data), iid, '
    'class_balanced, label_skew (the paper), dirichlet or shards.',
    'natural',
  )
  num_clients: int | None = _setting(
    'N; else as many as a natural partition has.', None, _at_least(1, 10**7)
  )
  examples_per_client: int | None = _setting(
    "A client's examples; else as many as there are without overlap.",
    None,
    _at_least(1),
  )
  dirichlet_alpha: float = _setting(
    'The concentration of --partition=dirichlet.', 0.5, _positive
  )
  shards_per_client: int = _setting('For --partition=shards.', 2, _at_least(1))
  held_out_clients: int | None = _setting(
    'Take the examples of so many natural clients, who have no part in the '
    'training and are the same for every --seed, as the test set.',
    None,
    _at_least(1),
  )
  data_dir: str | None = _setting(
    'The folder of the files; else Keras and TFF download.'
  )
  cache_dir: str | None = _setting(
    'Where client stores go; else the XDG cache.'
  )

  model: _Function = _setting(
    'mlp, alexnet, mobilenet_v2, resnet18 or shakespeare_lstm; or your own: '
    'FILE.py:function or module:function, which returns a Keras model.',
    check=_check_function,
    required=True,
  )
  loss: _Function | None = _setting(
    'What clients minimise: a loss of Keras, such as mean_squared_error, or '
    'FILE.py:function; else the cross-entropy of classes.',
    check=_check_function,
  )
  metrics: tuple[_Function, ...] = _setting(
    'What is measured on the test set, with commas, the one that decides '
    'first: metrics of Keras, or FILE.py:function; else accuracy, and with '
    '--loss the loss.',
    (),
    _check_function,
  )
  metric_goal: str | None = _setting(
    'max or min: what is better of the first metric, where nobody else says.',
    None,
    _one_of('max', 'min'),
  )
  compute_dtype: str = _setting(
    'In what the layers of clients compute: float32 or bfloat16; weights, '
    'updates and the clip are float32.',
    'float32',
    _one_of('float32', 'bfloat16'),
  )
  test_examples: int | None = _setting(
    'Evaluate on so many test examples, evenly spaced; else on all.',
    None,
    _at_least(1),
  )

  algorithm: str = _setting(
    'fed_avg (Alg. 1), ce_fed_avg (clips updates), dp_fed_avg (clips updates '
    'and adds noise) or model_clipping_fed_avg (clips models).',
    required=True,
  )
  num_rounds: int = _setting('T.', None, _at_least(1, 10**7), required=True)
  clients_per_round: int = _setting(
    'P, the size of a cohort; the expected size for --sampling=poisson and '
    'random_allocation.',
    None,
    _at_least(1),
    required=True,
  )
  sampling: str = _setting(
    'Who takes part: fixed_size, poisson or round_robin; with noise poisson, '
    'fixed_size, random_allocation or paper, and with noise that is correlated '
    'between rounds min_separation or grouped_poisson; docs/training.md.',
    'fixed_size',
  )
  min_separation: int | None = _setting(
    'b, the rounds from one participation of a client to its next, at least, '
    'for --sampling=round_robin, min_separation and grouped_poisson; else N / '
    'P, rounded down.',
    None,
    _at_least(1),
  )
  local_steps: int = _setting(
    'Q, the steps of a client.', None, _at_least(1), required=True
  )
  batch_size: int = _setting(
    'Examples in a local step.', None, _at_least(1), required=True
  )
  client_learning_rate: float = _setting(
    'eta_l.', None, _positive, required=True
  )
  local_step: _Function = _setting(
    'What a client does in a step: sgd, momentum (0.9), proximal (FedProx, '
    '--proximal_mu), scaffold (clients keep a control), or FILE.py:function, '
    'which returns a `LocalStep`; docs/recipes.md.',
    'sgd',
    _check_function,
  )
  proximal_mu: float | None = _setting(
    'mu of --local_step=proximal.', None, _positive
  )
  server_optimizer: str = _setting(
    "What applies the aggregate: sgd (the paper's step), momentum (0.9), adam, "
    'yogi or adagrad (epsilon 1e-3).',
    'sgd',
    _one_of('sgd', 'momentum', 'adam', 'yogi', 'adagrad'),
  )
  server_learning_rate: float = _setting('eta_g.', 1.0, _positive)

  clipping: str = _setting(
    'fixed (to c), adaptive (from c to the median of the norms) or per_layer '
    '(each of K tensors to c / sqrt(K)).',
    'fixed',
    _one_of('fixed', 'adaptive', 'per_layer'),
  )
  clipping_norm: float | None = _setting(
    'c, the threshold on the norms of updates, or of whole models for '
    'model_clipping_fed_avg.',
    None,
    _positive,
  )
  clipping_norm_from: str | None = _setting(
    'The folder of a finished run that gives c: half of the mean norm of the '
    'updates of fed_avg, an exact figure; or the last c of a dp_fed_avg run '
    'with --clipping=adaptive, whose epsilon is spent too.'
  )
  aggregation: str = _setting(
    'plain, secure (secure sums; noise at the server) or, for dp_fed_avg, '
    'distributed (noise at the clients, in integers).',
    'plain',
    _one_of('plain', 'secure', 'distributed'),
  )
  sum_bits: int | None = _setting(
    'For --aggregation=distributed: the bits of an element of the sum; else so '
    'many that nothing wraps.',
    None,
    _at_least(1, 62),
  )
  aggregator: _Function | None = _setting(
    "Your own in place of the algorithm's: FILE.py:function or "
    'module:function, which returns an unweighted aggregation factory of TFF; '
    'docs/your_own.md.',
    check=_check_function,
  )

  target_epsilon: float | None = _setting(
    'The budget, which sets the noise.', None, _positive
  )
  target_delta: float | None = _setting(
    "The budget's delta.", None, _probability
  )
  noise_multiplier: float | None = _setting(
    'Noise on the sum over c, in place of --target_epsilon.', None, _positive
  )
  noise_clients_per_round: int | None = _setting(
    'M: simulate P clients with the noise on the mean that cohorts of M of N M '
    '/ P clients would have. No guarantee, and no epsilon.',
    None,
    _at_least(1),
  )
  mechanism: str = _setting(
    "The noise: gaussian (each round's own), or correlated between rounds: "
    'banded or blt.',
    'gaussian',
    _one_of('gaussian', 'banded', 'blt'),
  )
  accountant: str = _setting(
    'rdp or pld, for --mechanism=gaussian.', 'rdp', _one_of('rdp', 'pld')
  )
  audit_canaries: int | None = _setting(
    'K: audit the run with about K canaries among its clients and as many held '
    'out. Not private; docs/audit.md.',
    None,
    # Fewer show nothing; each needs a direction of its own.
    _at_least(10, 2**16),
  )
  simulation_diagnostics: bool = _setting(
    "Measure the clients' exact updates in a private run too. Not private.",
    False,
    _check_truth,
  )

  output_dir: str | None = _setting(
    'The folder of the run; that of a row is in runs/ by default.'
  )
  seed: int = _setting(
    'For the split, the shuffling, the initial model, and the cohorts of runs '
    'without noise.',
    0,
    _seed,
  )
  model_seed: int | None = _setting(
    'For the initial model, in place of --seed.', None, _seed
  )
  # Whoever knows the seed of the sampling knows who takes part.
  sampling_seed: int | None = _setting(
    'For the cohorts, in place of --seed; of a private run, which has no '
    'guarantee then, in place of fresh entropy.',
    None,
    _at_least(0, 2**128 - 1),
  )
  rounds_per_evaluation: int = _setting('Evaluate how often.', 1, _at_least(1))
  rounds_per_checkpoint: int = _setting(
    'Save how often; a private run saves each round.', 10, _at_least(1)
  )
  update_rounds: tuple[int, ...] = _setting(
    'The rounds t, from 0, whose updates are written to updates/.',
    (),
    _at_least(0),
  )

  runtime: str = _setting(
    'in_process, ray (worker processes on this machine), or HOST:PORT, the '
    'head of a running Ray cluster; docs/runtime.md.',
    'in_process',
  )
  num_workers: int | None = _setting(
    "Ray's worker processes; else one a CPU.", None, _at_least(1)
  )

  def __post_init__(self):
    missing = []
    for field in dataclasses.fields(self):
      value = _plain(getattr(self, field.name))
      object.__setattr__(self, field.name, value)
      if value is None and field.default is None:
        missing += [f'`{field.name}`'] if field.metadata['required'] else []
        continue
      has_several = typing.get_origin(field.type) is tuple
      if isinstance(value, tuple) != has_several:
        kind = 'a sequence' if has_several else 'a single value'
        raise TypeError(f'`{field.name}` must be {kind}, found {value!r}.')
      for each in value if has_several else (value,):
        field.metadata['check'](field.name, each)
    if missing:
      raise ValueError(f'{", ".join(missing)} must be given.')
    if self.model_seed is None:
      object.__setattr__(self, 'model_seed', self.seed)
    for name in _FOLDERS:
      folder = getattr(self, name)
      if folder is not None:
        # A shell leaves the ~ of --flag=~/folder.
        object.__setattr__(self, name, os.path.expanduser(folder))

  def to_json(self) -> dict[str, Any]:
    """Returns the settings but those of the machine, as JSON has them."""
    return {
      name: _to_json(value)
      for name, value in vars(self).items()
      if name not in OF_THE_MACHINE
    }

  def differences(self, saved: Mapping[str, Any]) -> list[str]:
    """Returns what tells these settings from saved ones, a phrase each."""
    mine = self.to_json()
    return [
      f'{name} was {saved.get(name)!r} and is {mine.get(name)!r}'
      for name in {**mine, **saved}
      if not slack.agree(saved.get(name), mine.get(name))
    ]


def _to_json(value: Any) -> Any:
  if isinstance(value, tuple):
    return [_to_json(each) for each in value]
  return named_functions.name_of(value) if callable(value) else value


def _plain(value: Any) -> Any:
  """Returns the Python value of one of NumPy's; a tuple for a sequence."""
  if hasattr(value, 'tolist'):
    value = value.tolist()
  if isinstance(value, (list, tuple)):
    return tuple(map(_plain, value))
  return value


class _IntegersParser(flags.ListParser):
  """Takes whole numbers with commas for a flag."""

  def parse(self, argument: Any) -> list[int]:
    """Returns the numbers; see the base class."""
    return [int(each) for each in super().parse(argument)]


define_integers = functools.partial(
  flags.DEFINE, _IntegersParser(), serializer=flags.CsvListSerializer(',')
)
# By the type of a value, and of each where there are several.
_DEFINE = {
  bool: flags.DEFINE_bool,
  float: flags.DEFINE_float,
  int: flags.DEFINE_integer,
  str: flags.DEFINE_string,
}
_DEFINE_SEVERAL = {int: define_integers, str: flags.DEFINE_list}


def define_flags(values: flags.FlagValues) -> None:
  """Defines the flag of each setting, in its group."""
  firsts = {name: group for group, name in GROUPS.items()}
  group = ''
  for field in dataclasses.fields(Config):
    group = firsts.get(field.name, group)
    kind = field.type
    while arguments := typing.get_args(kind):
      kind = arguments[0]
    is_tuple = typing.get_origin(field.type) is tuple
    define = (_DEFINE_SEVERAL if is_tuple else _DEFINE)[kind]
    required = ' Required.' if field.metadata['required'] else ''
    text = f'{field.metadata["help"]}{required}'
    common = dict(flag_values=values, module_name=group)
    define(field.name, field.default, text, **common)
