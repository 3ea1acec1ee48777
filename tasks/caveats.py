"""Why a private run does not have the guarantee of its plan."""

from collections.abc import Mapping
from typing import Any

from tasks.experiment import ExperimentConfig
from tasks.task import Task
from tff_clipping.privacy import PrivacyLedger


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
    'the seed of the noise was given, and whoever knows it can subtract the '
    'noise': asked.noise_seed is not None,
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
  }
  return tuple(reason for reason, applies in reasons.items() if applies)


def find_moved(
  before: Mapping[str, Any],
  now: Mapping[str, Any],
  ledger: PrivacyLedger,
  num_done: int,
) -> tuple[str, ...]:
  """Returns what takes the guarantee from a run that goes on elsewhere.

  Args:
    before: What config.json held; what it lacks is not compared.
    now: What it is to hold.
    ledger: What was charged.
    num_done: The number of rounds that the latest checkpoint has.

  Returns:
    A main clause; none if nothing changed, or no round is run again.
  """
  is_again = any(t is None or t > num_done for t in ledger.rounds)
  has_moved = any(
    key in before and before[key] != now[key] for key in ('versions', 'machine')
  )
  if not (is_again and has_moved):
    return ()
  return (
    'rounds that were charged were run again on another machine or with other '
    "versions, and which of them had other bits depends on the clients' data",
  )
