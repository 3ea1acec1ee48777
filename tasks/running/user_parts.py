"""What a run takes from its user in place of ours: data, model, aggregator."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from tasks.algorithms.experiment import ExperimentConfig
from tasks.data.task import Task
from tasks.settings import named_functions


@dataclasses.dataclass(frozen=True)
class UserParts:
  """The parts that a user gives; `None` is ours, by its name in the settings.

  Attributes:
    task: Data with their split. A named one is made by `registry.create_task`.
    create_model: Returns a Keras model; see `own_models.create_own_model`.
    create_aggregator: Returns an aggregation factory; see
      `tasks.algorithms.user_aggregator`.
  """

  task: Task | None = None
  create_model: Callable[..., Any] | None = None
  create_aggregator: Callable[..., Any] | None = None

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


NO_USER_PARTS = UserParts()
