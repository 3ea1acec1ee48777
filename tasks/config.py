"""The settings of a run: a field is a flag, with its help and its check.

A `Config` is plain values, checked one by one. Which values go together,
`tasks.algorithms` says. Nothing here imports TensorFlow.
"""

import dataclasses
import typing
from collections.abc import Callable, Mapping
from typing import Any

from absl import flags

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
# Where a run is executed; the same run may go on elsewhere.
_OF_THE_MACHINE = (
  *('data_dir', 'cache_dir', 'output_dir', 'clipping_norm_from'),
  *('runtime', 'num_workers'),
)

_Check = Callable[[str, Any], Any]


def _setting(
  text: str,
  default: Any = dataclasses.MISSING,
  check: _Check | None = None,
) -> Any:
  """Returns a field; without a default it must be given, `None` is not."""
  return dataclasses.field(
    default=default, metadata={'help': text, 'check': check}
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
    'or module:function.'
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
    'The concentration of --partition=dirichlet.', 0.5
  )
  shards_per_client: int = _setting('For --partition=shards.', 2, _at_least(1))
  held_out_clients: int | None = _setting(
    'Take the examples of so many natural clients, drawn by --seed, who have '
    'no part in the training, as the test set.',
    None,
    _at_least(1),
  )
  data_dir: str | None = _setting(
    'The folder of the files; else Keras and TFF download.', None
  )
  cache_dir: str | None = _setting(
    'Where client stores go; else the XDG cache.', None
  )

  model: str = _setting(
    'mlp, alexnet, mobilenet_v2, resnet18 or shakespeare_lstm; or your own: '
    'FILE.py:function or module:function, which returns a Keras model.'
  )
  loss: str | None = _setting(
    'What clients minimise: a loss of Keras, such as mean_squared_error, or '
    'FILE.py:function; else the cross-entropy of classes.',
    None,
  )
  metrics: tuple[str, ...] = _setting(
    'What is measured on the test set, with commas, the one that decides '
    'first: metrics of Keras, or FILE.py:function; else accuracy, and with '
    '--loss the loss.',
    (),
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
    'and adds noise) or model_clipping_fed_avg (clips models).'
  )
  num_rounds: int = _setting('T.', check=_at_least(1, 10**7))
  clients_per_round: int = _setting(
    'P, the size of a cohort; the expected size for --sampling=poisson and '
    'random_allocation.',
    check=_at_least(1),
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
  local_steps: int = _setting('Q, the steps of a client.', check=_at_least(1))
  batch_size: int = _setting('Examples in a local step.', check=_at_least(1))
  client_learning_rate: float = _setting('eta_l.', check=_positive)
  local_step: str = _setting(
    'What a client does in a step: sgd, momentum (0.9), proximal (FedProx, '
    '--proximal_mu), scaffold (clients keep a control), or FILE.py:function, '
    'which returns a `LocalStep`; docs/recipes.md.',
    'sgd',
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
    'with --clipping=adaptive, whose epsilon is spent too.',
    None,
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
  aggregator: str | None = _setting(
    "Your own in place of the algorithm's: FILE.py:function or "
    'module:function, which returns an unweighted aggregation factory of TFF; '
    'docs/your_own.md.',
    None,
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
  )

  output_dir: str | None = _setting(
    'The folder of the run; that of a row is in runs/ by default.', None
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
    for field in dataclasses.fields(self):
      value = _plain(getattr(self, field.name))
      object.__setattr__(self, field.name, value)
      if value is None and field.default is None:
        continue
      each = value if isinstance(value, tuple) else (value,)
      for one in each:
        _check_kind(field, one)
        if field.metadata['check'] is not None:
          field.metadata['check'](field.name, one)
    if self.model_seed is None:
      object.__setattr__(self, 'model_seed', self.seed)

  def to_json(self) -> dict[str, Any]:
    """Returns the settings but those of the machine, as JSON has them."""
    return {
      name: list(value) if isinstance(value, tuple) else value
      for name, value in dataclasses.asdict(self).items()
      if name not in _OF_THE_MACHINE
    }

  @classmethod
  def from_json(cls, saved: Mapping[str, Any]) -> 'Config':
    """Returns the settings that `to_json` gave.

    Raises:
      TypeError: If a value is of the wrong kind, or no setting.
      ValueError: If a value is out of range.
    """
    return create(
      **{k: tuple(v) if isinstance(v, list) else v for k, v in saved.items()}
    )

  def differences(self, saved: Mapping[str, Any]) -> list[str]:
    """Returns what tells these settings from saved ones, a phrase each."""
    mine = self.to_json()
    return [
      f'{name} was {saved.get(name)!r} and is {mine.get(name)!r}'
      for name in {**mine, **saved}
      if not slack.agree(saved.get(name), mine.get(name))
    ]


def create(**values: Any) -> Config:
  """Returns a `Config`.

  Args:
    **values: The settings.

  Raises:
    TypeError: If one is no setting, or of the wrong kind.
    ValueError: If one is missing, or out of range.
  """
  fields = {field.name: field for field in dataclasses.fields(Config)}
  for name in values:
    if name not in fields:
      near = [k for k in fields if k.endswith(f'_{name}')]
      hint = f': is it {" or ".join(near)}?' if near else '.'
      raise TypeError(f'`{name}` is no setting{hint}')
  missing = [
    f'`{name}`'
    for name, field in fields.items()
    if field.default is dataclasses.MISSING and values.get(name) is None
  ]
  if missing:
    raise ValueError(f'{", ".join(missing)} must be given.')
  return Config(**values)


def _plain(value: Any) -> Any:
  """Returns the Python value of one of NumPy's; a tuple for a sequence."""
  if hasattr(value, 'tolist'):
    value = value.tolist()
  if isinstance(value, (list, tuple)):
    return tuple(map(_plain, value))
  return value


def _kind(field: dataclasses.Field) -> type:
  """Returns the type of a value, or of each in a tuple."""
  args = [a for a in typing.get_args(field.type) if a not in (type(None), ...)]
  return args[0] if args else field.type


def _check_kind(field: dataclasses.Field, value: Any) -> None:
  kind = _kind(field)
  if kind is int:
    argument_checks.check_integer(field.name, value)
  elif kind is float:
    argument_checks.check_number(field.name, value)
  elif not isinstance(value, kind):
    name = {str: 'a string', bool: 'True or False'}[kind]
    raise TypeError(f'`{field.name}` must be {name}, found {value!r}.')


class _IntegerParser(flags.ArgumentParser):
  """Takes whole numbers for a flag, also as 1e6 or 80.0."""

  syntactic_help = 'a whole number'

  def parse(self, argument: str | int) -> int:
    """Returns the number; see the base class."""
    return argument_checks.parse_integer(str(argument))

  def flag_type(self) -> str:
    """Returns the name of the kind; see the base class."""
    return 'int'


def _define_integer(name: str, default: int | None, text: str, **args) -> None:
  serializer = flags.ArgumentSerializer()
  flags.DEFINE(
    _IntegerParser(), name, default, text, serializer=serializer, **args
  )


_DEFINE = {
  int: _define_integer,
  float: flags.DEFINE_float,
  str: flags.DEFINE_string,
  bool: flags.DEFINE_bool,
}


def define_flags() -> None:
  """Defines the flag of each setting, in its group; called once a process."""
  firsts = {name: group for group, name in GROUPS.items()}
  group = ''
  for field in dataclasses.fields(Config):
    group = firsts.get(field.name, group)
    default, text = field.default, field.metadata['help']
    if default is dataclasses.MISSING:
      default, text = None, f'{text} Required.'
    if typing.get_origin(field.type) is tuple:
      default = list(map(str, default))
      flags.DEFINE_list(field.name, default, text, module_name=group)
    else:
      define = _DEFINE[_kind(field)]
      define(field.name, default, text, module_name=group)


def read_flags() -> dict[str, Any]:
  """Returns the settings that were given as flags, by name.

  Raises:
    ValueError: If a list of integers holds something else.
  """
  given = {}
  for field in dataclasses.fields(Config):
    flag = flags.FLAGS[field.name]
    if not flag.present:
      continue
    value = flag.value
    if typing.get_origin(field.type) is tuple:
      value = parse_list(field.name, value, _kind(field))
    given[field.name] = value
  return given


def parse_list(name: str, texts: list[str], kind: type) -> tuple[Any, ...]:
  """Returns the values of a flag with commas.

  Args:
    name: The flag's.
    texts: What stands between the commas.
    kind: int or str.

  Raises:
    ValueError: If one is not of the kind.
  """
  try:
    return tuple(map(kind, texts))
  except ValueError:
    raise ValueError(
      f'`{name}` must be integers with commas, found {",".join(texts)!r}.'
    ) from None
