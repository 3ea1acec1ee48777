"""What a run takes from its user in place of ours: data, model, aggregator."""

import dataclasses
from collections.abc import Callable
from typing import Any

from tasks.algorithms.experiment import ExperimentConfig
from tasks.data.task import Task
from tasks.settings import named_functions


@dataclasses.dataclass(frozen=True)
class OwnParts:
  """The parts of a user's own; `None` is ours, by its name in the settings.

  Attributes:
    task: Data with their split. A named one is made by `registry.create_task`.
    create_model: Returns a Keras model; see `own_models.create_own_model`.
    create_aggregator: Returns an aggregation factory; see
      `run_aggregators.create_own_aggregator`.
  """

  task: Task | None = None
  create_model: Callable[..., Any] | None = None
  create_aggregator: Callable[..., Any] | None = None

  def with_named(self, config: ExperimentConfig) -> 'OwnParts':
    """Returns these and the functions that the settings name.

    Args:
      config: The settings.

    Raises:
      ValueError: If a function cannot be imported.
      TypeError: If a name is none of a function.
    """
    loaded = {}
    if self.create_model is None and named_functions.is_function_name(
      config.model
    ):
      loaded['create_model'] = named_functions.load_function(
        'model', config.model
      )
    if self.create_aggregator is None and config.aggregator is not None:
      loaded['create_aggregator'] = named_functions.load_function(
        'aggregator', config.aggregator
      )
    return dataclasses.replace(self, **loaded)


# Nothing of a user's own.
OURS = OwnParts()


def check_for_privacy(config: ExperimentConfig, task: Task) -> None:
  """Refuses a private run whose test set or classes are known from clients.

  Raises:
    ValueError: If `task` has no test set of its own, or a number of classes
      that was read from the clients' labels, and the run is private.
  """
  if not config.is_private:
    return
  if task.test_is_held_out:
    raise ValueError(
      f'`task` must have a test set of its own for {config.algorithm}, found '
      f'none in {config.task}: its accuracy on examples of the clients would '
      'not be private.'
    )
  if task.classes_are_of_clients:
    raise ValueError(
      f'`task` must have `num_classes`, or a test example of the last class, '
      f'for {config.algorithm}, found neither in {config.task}: that a client '
      'has this class would be seen by the shape of the model.'
    )
