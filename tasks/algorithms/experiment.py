"""What a training run is asked to do, checked before anything is built."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tasks import named_functions
from tasks.algorithms import builders, local_steps
from tasks.algorithms.algorithm import Algorithm
from tasks.data.datasets import own_data, registry
from tasks.data.partitions.partition_config import (
  PartitionConfig,
  PartitionSettings,
)
from tasks.models import objective
from tasks.settings.setting_fields import (
  LARGEST_SEED,
  at_least,
  check_settings,
  one_of,
  positive,
  setting,
)
from tff_clipping import argument_checks, privacy
from tff_clipping.privacy.accounting import ranges, slack

# The names of `keras_models.MODELS`, which takes seconds to import.
MODELS = ('mlp', 'alexnet', 'mobilenet_v2', 'resnet18', 'shakespeare_lstm')
COMPUTE_DTYPES = ('float32', 'bfloat16')
SERVER_OPTIMIZERS = ('sgd', 'momentum', 'adam', 'yogi', 'adagrad')


def _check_model_name(name: str, value: Any) -> None:
  if isinstance(value, str) and not (
    value in MODELS or named_functions.is_function_name(value)
  ):
    raise ValueError(
      f'`{name}` must be one of {", ".join(MODELS)}, module:function or '
      f'FILE.py:function, found {value!r}.'
    )
  if not isinstance(value, str):
    one_of(*MODELS)(name, value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommonSettings(
  objective.ObjectiveSettings, local_steps.LocalStepSettings, PartitionSettings
):
  """The settings that are for all algorithms."""

  task: str = setting(
    f'The data set: {", ".join(registry.TASKS)}; or your own: FILE.npz, '
    'FILE.csv, module:function or FILE.py:function; see docs/data.md.',
    check=registry.check_task_name,
  )
  partition: str | None = setting(
    'The split over clients: iid, class_balanced, label_skew (the paper), '
    'dirichlet, shards or natural, which is the default for data of your own. '
    'Required for other data without --row.',
    None,
  )
  model: str = setting(
    f'{", ".join(MODELS)}; or your own: module:function or FILE.py:function, '
    'which returns a Keras model.',
    check=_check_model_name,
  )
  algorithm: str = setting(
    '; '.join(f'{name}: {what}' for name, what in builders.NAMES.items()) + '.',
    check=one_of(*builders.NAMES),
  )
  clients_per_round: int = setting(
    'P, the size of a cohort; the expected size for --sampling=poisson and '
    'random_allocation.',
    check=at_least(1),
  )
  num_rounds: int = setting('T.', check=at_least(1, ranges.MAX_ROUNDS))
  local_steps: int = setting('Q, the steps of a client.', check=at_least(1))
  batch_size: int = setting('Examples in a local step.', check=at_least(1))
  client_learning_rate: float = setting('eta_l.', check=positive)
  compute_dtype: str = setting(
    'In what the layers of clients compute: float32 or bfloat16; weights, '
    'updates and the clip are float32.',
    'float32',
    check=one_of(*COMPUTE_DTYPES),
  )
  server_learning_rate: float = setting('eta_g.', 1.0, check=positive)
  server_optimizer: str = setting(
    "What applies the aggregate: sgd (the paper's step), momentum (0.9), adam, "
    'yogi or adagrad (epsilon 1e-3).',
    'sgd',
    check=one_of(*SERVER_OPTIMIZERS),
  )
  sampling: str = setting(
    'poisson, fixed_size or round_robin; for dp_fed_avg '
    'poisson, random_allocation (each client comes in one secret round of '
    'each epoch, which it draws itself; --accountant=pld), fixed_size or paper '
    "(the paper's accounting), and with noise "
    'that is correlated between rounds min_separation or grouped_poisson '
    '(banded alone); see docs/correlated_noise.md.',
    'fixed_size',
  )
  min_separation: int = setting(
    'b, the rounds from one participation of a client to its next, at least, '
    'for --sampling=round_robin, min_separation and grouped_poisson.',
    1,
    check=at_least(1),
  )
  accountant: str = setting(
    f'{" or ".join(privacy.ACCOUNTANTS)}, for --mechanism=gaussian.',
    'rdp',
    check=one_of(*privacy.ACCOUNTANTS),
  )
  model_seed: int = setting(
    'For the initial model.', 0, check=argument_checks.check_seed
  )
  # Whoever knows the seed of the sampling knows who takes part. The run keeps
  # what it draws: `RunFolder.draw_seeds`.
  sampling_seed: int | None = setting(
    'For the cohorts; else 0, and for dp_fed_avg fresh entropy, which '
    'config.json keeps.',
    None,
    check=at_least(0, LARGEST_SEED),
  )
  rounds_per_evaluation: int = setting(
    'Evaluate how often.', 1, check=at_least(1)
  )
  test_examples: int | None = setting(
    'Evaluate on so many test examples, evenly spaced; all by default.',
    None,
    check=at_least(1),
  )
  rounds_per_checkpoint: int = setting('Save how often.', 10, check=at_least(1))
  update_rounds: tuple[int, ...] = setting(
    'The rounds t, from 0, whose updates are written to updates/.',
    (),
    check=at_least(0),
  )
  simulation_diagnostics: bool = setting(
    "Measure the clients' exact updates in a private run too. Not private.",
    False,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentConfig(builders.Settings, CommonSettings):
  """The settings of a run; each is a flag of `tasks.train`, with its help.

  A `None` is 'not given'.

  Raises:
    TypeError: If a setting is of the wrong kind.
    ValueError: If it is out of range or does not fit another.
  """

  def __post_init__(self):
    check_settings(self)
    if self.sampling_seed is None and not self.is_private:
      object.__setattr__(self, 'sampling_seed', 0)
    if (
      self.num_clients is not None and self.clients_per_round > self.num_clients
    ):
      raise ValueError(
        f'`clients_per_round` must be at most the {self.num_clients} clients '
        f'that there are, found {self.clients_per_round}.'
      )
    if self.partition is None:
      if not own_data.is_own(self.task):
        raise ValueError(f'`partition` must be given for {self.task}.')
      object.__setattr__(self, 'partition', 'natural')
    self.partition_config()  # Raises for one that cannot be.
    objective.create_objective(self)  # The same.
    builders.check(self)
    local_steps.check(self)
    self._check_update_rounds()

  @property
  def builder(self) -> Algorithm:
    """What builds the algorithm of the run."""
    return builders.find(self)

  @property
  def objective(self) -> objective.Objective:
    """What the run minimises and measures."""
    return objective.create_objective(self)

  @property
  def is_private(self) -> bool:
    """Whether the run has a privacy guarantee."""
    return self.builder.is_private

  @property
  def measures_updates(self) -> bool:
    """Whether the clients' exact updates are measured."""
    return not self.is_private or self.simulation_diagnostics

  @property
  def rests_on_secret_cohorts(self) -> bool:
    """Whether the plan of a private run needs secrecy of who takes part."""
    return self.sampling != 'min_separation'

  @property
  def seeds_to_draw(self) -> tuple[str, ...]:
    """The seeds that were not given, and come from fresh entropy."""
    needed = ['sampling_seed']
    if self.audit_canaries is not None:
      needed.append('audit_seed')
    return tuple(name for name in needed if getattr(self, name) is None)

  def _check_update_rounds(self) -> None:
    if len(set(self.update_rounds)) < len(self.update_rounds):
      raise ValueError(
        '`update_rounds` must be different rounds, found '
        f'{", ".join(map(str, self.update_rounds))}.'
      )
    if max(self.update_rounds, default=0) >= self.num_rounds:
      raise ValueError(
        f'`update_rounds` must be below `num_rounds` ({self.num_rounds}): they '
        f'count from 0; found {max(self.update_rounds)}.'
      )

  def partition_config(self) -> PartitionConfig:
    """Returns how the training examples are split over the clients."""
    settings = {
      field.name: getattr(self, field.name)
      for field in dataclasses.fields(PartitionSettings)
    }
    return PartitionConfig(self.partition, **settings)

  def to_json(self) -> dict[str, Any]:
    """Returns the settings as they are saved in config.json."""
    return {
      name: list(value) if isinstance(value, tuple) else value
      for name, value in dataclasses.asdict(self).items()
    }

  @classmethod
  def from_json(cls, saved: Mapping[str, Any]) -> 'ExperimentConfig':
    """Returns the settings of a config.json.

    Raises:
      TypeError: If a value is of the wrong kind.
      ValueError: If one is out of range.
    """
    return cls(
      **{
        name: tuple(value) if isinstance(value, list) else value
        for name, value in saved.items()
      }
    )

  def differences(self, saved: Mapping[str, Any]) -> list[str]:
    """Returns what tells these settings from saved ones, a phrase each.

    A clipping norm that comes from a run may differ in its last digits.
    """
    mine = self.to_json()
    # A setting that is younger than the file.
    saved = {
      field.name: list(field.default)
      if isinstance(field.default, tuple)
      else field.default
      for field in dataclasses.fields(self)
      if field.default is not dataclasses.MISSING
    } | dict(saved)
    return [
      f'{name} was {saved.get(name)!r} and is {mine.get(name)!r}'
      for name in {**mine, **saved}
      if not slack.agree(saved.get(name), mine.get(name))
    ]
