"""What a run says of its privacy: what is charged, and what takes it away."""

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from tasks.algorithms.experiment import ExperimentConfig
from tasks.data.task import Task
from tasks.running.run_folder import RunFolder
from tff_clipping import privacy, storage_errors
from tff_clipping.privacy.plans import words
from tff_clipping.programs.checks import records
from tff_clipping.programs.training import private_rounds


@dataclasses.dataclass(frozen=True)
class RunPrivacy:
  """The plan of a run, and what does not hold of it.

  Attributes:
    config: The settings of the run.
    folder: Its folder.
    plan: Its plan; `None` for a run without.
    caveats: Why the guarantee of the plan does not hold as it was run.
  """

  config: ExperimentConfig
  folder: RunFolder
  plan: privacy.BasePlan | None
  caveats: tuple[str, ...]

  def of_process(self, process: Any) -> 'RunPrivacy':
    """Returns the same, which says so if nobody has checked the process."""
    if self.plan is None or records.has_record(process):
      return self
    return dataclasses.replace(self, caveats=(*self.caveats, records.UNCHECKED))

  def announce(self) -> None:
    """Says what a private run will promise; nothing where nobody looks."""
    if self.plan is not None and sys.stderr.isatty():
      described = privacy.describe_plan(self.plan, self.caveats)
      print(f'{self.config.algorithm}: {described}', file=sys.stderr)
      print(
        'The outcome of each round is saved; --rounds_per_checkpoint has no '
        'effect.',
        file=sys.stderr,
      )
      tightest = self._describe_tightest()
      if tightest:
        print(tightest, file=sys.stderr)

  def open_ledger(self) -> contextlib.AbstractContextManager:
    """Opens the ledger, in a body; `None` there for a run without a plan.

    Raises:
      StorageError: If it cannot be written, or is damaged.
    """
    if self.plan is None:
      return contextlib.nullcontext()
    with _reading_ledger(), storage_errors.writing('The ledger'):
      return privacy.PrivacyLedger(
        self.folder.ledger, self.plan, caveats=self.caveats
      )

  def write(self, ledger: privacy.PrivacyLedger | None) -> None:
    """Writes privacy.json, with all caveats that the ledger has."""
    if ledger is not None:
      content = {
        **privacy.plan_to_json(self.plan, ledger.caveats),
        'aggregation': self._describe_aggregation(ledger.caveats),
      }
      if self._describe_tightest():
        content['tightest_epsilon'] = self.plan.tightest_epsilon
      self.folder.write_json(self.folder.privacy, content)

  def _describe_aggregation(self, caveats: Sequence[str]) -> str:
    """Returns what clips and adds noise, and whether that was checked."""
    described = self.config.builder.describe()
    if self.config.aggregator is None:
      return described
    is_checked = records.UNCHECKED not in caveats
    return f'{described} This was {"" if is_checked else "not "}checked.'

  def _describe_tightest(self) -> str:
    """Returns that a tighter accountant charges less; '' if none is proved."""
    if (
      self.plan is None
      or not self.config.builder.noise_is_continuous
      # Nobody knows of what kind its noise is.
      or self.config.aggregator is not None
    ):
      return ''
    return words.describe_tightest(self.plan)

  def describe_charged(self, ledger: privacy.PrivacyLedger | None) -> list[str]:
    """Returns what was charged, in a sentence, if anything was."""
    if ledger is None or not ledger.num_releases:
      return []
    charged = words.state_guarantee(
      ledger.actual_epsilon,
      ledger.plan.target_delta,
      ledger.plan.actual_relation,
    )
    return [f'Charged: {charged}.']

  def describe_caveats(self, ledger: privacy.PrivacyLedger | None) -> list[str]:
    """Returns what takes the guarantee away, in a sentence if at all."""
    # Those of the run's first start are among the ledger's.
    caveats = self.caveats if ledger is None else ledger.caveats
    return [words.state_caveats(caveats)] if caveats else []


def find_plan(
  config: ExperimentConfig, num_clients: int, folder: RunFolder
) -> privacy.BasePlan | None:
  """Returns the plan of a run, which is in its ledger if it goes on.

  Args:
    config: The settings.
    num_clients: The clients of its data.
    folder: The folder of the run.

  Raises:
    StorageError: If the ledger is damaged.
    ValueError: If no plan is possible, or that in the ledger is another.
  """
  with _reading_ledger():
    return config.builder.find_plan(num_clients, folder.ledger)


def find_caveats(
  asked: ExperimentConfig,
  task: Task,
  clipping_norm_source: str | None,
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
    "the clipping norm is an exact figure of the clients' data": (
      clipping_norm_source is not None
    ),
    'the test set has examples of the clients, and what the model does on it '
    'is measured exactly': task.test_is_of_clients,
    'the clients were made up by a split of the examples, and nothing is '
    'promised to those whose data they are': (task.partition.makes_up_clients),
  }
  return tuple(reason for reason, applies in reasons.items() if applies)


@contextlib.contextmanager
def _reading_ledger() -> Iterator[None]:
  """Says of a damaged ledger that it is a file, and not a setting."""
  try:
    yield
  except privacy.DamagedLedgerError as e:
    raise storage_errors.StorageError(str(e)) from e
