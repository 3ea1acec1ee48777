"""What is wrong with a run, found before anything of it begins.

TensorFlow takes seconds to import, and a sweep hours to come to its last run.
"""

from tasks import named_functions
from tasks.algorithms.experiment import ExperimentConfig
from tasks.data.datasets import registry
from tasks.data.task import Task
from tasks.running.run_folder import RunFolder
from tasks.settings.data_folders import DataFolders


def read_task(config: ExperimentConfig, folders: DataFolders) -> Task:
  """Reads the data of a run and splits them; see `check_task` for errors."""
  task = registry.create_task(
    config.task,
    config.partition_config(),
    data_dir=folders.data_dir,
    cache_dir=folders.cache_dir,
    kinds=config.objective.kinds,
  )
  return check_task(config, task)


def check_task(config: ExperimentConfig, task: Task) -> Task:
  """Returns the data of a run with as many test examples as are asked for.

  Raises:
    ValueError: If there are fewer; the loss or a metric does not fit the
      labels; or the run is private, and `task` has no test set of its own, or a
      number of classes that was read from the clients' labels.
  """
  config.objective.check_task(task)
  if config.is_private and task.test_is_held_out:
    raise ValueError(
      f'`task` must have a test set of its own for {config.algorithm}, found '
      f'none in {config.task}: its accuracy on examples of the clients would '
      'not be private.'
    )
  if config.is_private and task.classes_are_of_clients:
    raise ValueError(
      f'`task` must have `num_classes`, or a test example of the last class, '
      f'for {config.algorithm}, found neither in {config.task}: that a client '
      'has this class would be seen by the shape of the model.'
    )
  if config.test_examples is None:
    return task
  return task.with_test_examples(config.test_examples)


def read_data(config: ExperimentConfig, folders: DataFolders) -> Task | None:
  """Reads and splits the data of a run, and checks names of functions.

  Args:
    config: The settings.
    folders: Where the data are.

  Returns:
    The data, so that they are read once; `None` for those of a function of a
    user's own: to import it might import TensorFlow.

  Raises:
    ValueError: If there is no such file, module or function, or the data cannot
      be used.
  """
  for setting in ('model', 'aggregator', 'task'):
    name = getattr(config, setting)
    if name is not None and named_functions.is_function_name(name):
      named_functions.check_function_name(setting, name)
  for setting, name in config.objective.user_functions:
    named_functions.check_function_name(setting, name)
  if named_functions.is_function_name(config.task):
    return None
  return read_task(config, folders)


def check_plan(
  config: ExperimentConfig,
  num_clients: int,
  folder: RunFolder | None = None,
) -> None:
  """Raises if no plan is possible for a private run.

  Noise that is correlated between rounds is left out: its plan takes long. So
  is a run that goes on, which has its plan.

  Args:
    config: The settings.
    num_clients: The clients of its data.
    folder: The folder of the run; `None` where it is not known.

  Raises:
    ValueError: If no noise meets the budget, or the data have too few clients.
  """
  goes_on = folder is not None and folder.ledger.exists()
  algorithm = config.builder
  if algorithm.is_private and algorithm.plans_quickly and not goes_on:
    algorithm.find_plan(num_clients)
  elif config.clients_per_round > num_clients:
    raise ValueError(
      f'`clients_per_round` must be at most the {num_clients} clients that '
      f'there are, found {config.clients_per_round}.'
    )
