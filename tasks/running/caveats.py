"""Why a private run does not have the guarantee of its plan."""

from tasks.algorithms.experiment import ExperimentConfig
from tasks.data.task import Task
from tff_clipping.programs.training import private_rounds


def find(
  asked: ExperimentConfig, task: Task, clipping_norm_source: str | None
) -> tuple[str, ...]:
  """Returns what takes the plan's guarantee from a run.

  Args:
    asked: The settings as they were given: a seed in them is known to whoever
      gave it. One that the run draws itself (`RunFolder.draw_seeds`) is not
      in them.
    task: The data.
    clipping_norm_source: From what data of the clients the clipping norm comes;
      `None` if it was given.

  Returns:
    Main clauses, for `PrivacyPlan.describe`; none for a run that is not
    private.
  """
  if not asked.is_private:
    return ()
  reasons = {
    private_rounds.GIVEN_NOISE: asked.noise_seed is not None,
    'the seed of the cohorts was given, and sampling hides no client from '
    'whoever knows it': asked.rests_on_secret_cohorts
    and asked.sampling_seed is not None,
    "the run's files hold exact figures of the clients": (
      asked.simulation_diagnostics
    ),
    'the run was audited: canaries are among its clients, and its files say '
    'which of them took part': asked.audit_canaries is not None,
    "nobody has checked that the run's own aggregator clips each update and "
    "adds the plan's noise": asked.aggregator is not None,
    "the clipping norm is an exact figure of the clients' data": (
      clipping_norm_source is not None
    ),
    'the test set has examples of the clients, and what the model does on it '
    'is measured exactly': task.test_is_of_clients,
    'the clients were made up by a split of the examples, and nothing is '
    'promised to those whose data they are': task.partition.makes_up_clients,
  }
  return tuple(reason for reason, applies in reasons.items() if applies)
