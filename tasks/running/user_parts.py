"""What a run takes from its user in place of ours: data, model, aggregator."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tasks import named_functions
from tasks.algorithms.experiment import ExperimentConfig
from tasks.data.task import Task


@dataclasses.dataclass(frozen=True)
class UserParts:
  """The parts that a user gives; `None` is ours, by its name in the settings.

  Attributes:
    task: Data with their split. A named one is made by `registry.create_task`.
    create_model: Returns a Keras model; see `own_models.create_own_model`.
    create_aggregator: Returns an aggregation factory; see
      `tasks.algorithms.user_aggregator`.
    functions: What the names of losses and metrics stand for; see
      `tasks.models.losses_and_metrics`.
  """

  task: Task | None = None
  create_model: Callable[..., Any] | None = None
  create_aggregator: Callable[..., Any] | None = None
  functions: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def with_named(
    self,
    config: ExperimentConfig,
    settings: Sequence[str] = ('model', 'aggregator'),
  ) -> 'UserParts':
    """Returns these and the functions that settings name.

    Args:
      config: The settings.
      settings: Those that may name a function that is not here yet.

    Raises:
      ValueError: If a function cannot be imported.
      TypeError: If a name is none of a function.
    """
    loaded = {}
    for setting in settings:
      name = getattr(config, setting)
      if getattr(
        self, f'create_{setting}'
      ) is None and named_functions.is_function_name(name or ''):
        loaded[f'create_{setting}'] = named_functions.load_function(
          setting, name
        )
    return dataclasses.replace(self, **loaded)

  def with_objective(self, config: ExperimentConfig) -> 'UserParts':
    """Returns these and the losses and metrics that settings name.

    Args:
      config: The settings.

    Raises:
      ValueError: If a function cannot be imported.
      TypeError: If a name is none of a function.
    """
    functions = dict(self.functions)
    for setting, name in config.objective.user_functions:
      if name not in functions:
        functions[name] = named_functions.load_function(setting, name)
    return dataclasses.replace(self, functions=functions)


NO_USER_PARTS = UserParts()
