"""What a run says of its privacy: what is charged, and what takes it away."""

import contextlib
import dataclasses
import sys
from collections.abc import Iterator
from typing import Any

from tasks import algorithms
from tasks.config import Config
from tasks.data.task import Task
from tasks.running.folder import RunFolder
from tff_clipping import privacy, storage_errors
from tff_clipping.privacy.accounting import rounding
from tff_clipping.privacy.ledger import spending
from tff_clipping.privacy.plans import words
from tff_clipping.programs.checks import records


@dataclasses.dataclass(frozen=True)
class RunPrivacy:
  """The plan of a run, and what does not hold of it.

  Attributes:
    config: The settings of the run.
    folder: Its folder.
    plan: Its plan; `None` for a run without.
    caveats: Why the guarantee of the plan does not hold as it was run.
  """

  config: Config
  folder: RunFolder
  plan: privacy.BasePlan | None
  caveats: tuple[str, ...]

  @contextlib.contextmanager
  def open_ledger(self) -> Iterator[privacy.PrivacyLedger | None]:
    """Opens the ledger, and writes privacy.json at its start and its end.

    Raises:
      StorageError: If one cannot be written.
      DamagedLedgerError: If the ledger is not as it was written.
    """
    if self.plan is None:
      yield None
      return
    with storage_errors.writing('The ledger'):
      opened = privacy.PrivacyLedger(
        self.folder.ledger, self.plan, caveats=self.caveats
      )
    with opened as ledger:
      self._write(ledger)
      self._announce()
      try:
        yield ledger
      except BaseException:
        # The caveats of its rounds; what went wrong comes first.
        with contextlib.suppress(OSError):
          self._write(ledger)
        raise
      self._write(ledger)

  def describe(
    self, ledger: privacy.PrivacyLedger | None, *, is_planned: bool
  ) -> list[str]:
    """Returns what was charged, and what takes the guarantee away.

    Args:
      ledger: The ledger; `None` for a run without.
      is_planned: Whether the number of rounds was fixed before: if releases
        decided on it, all rounds of the plan count.
    """
    if self.config.noise_clients_per_round is not None:
      return [
        'No guarantee: a simulation of the noise that '
        f'{self.config.noise_clients_per_round} clients a round would have.'
      ]
    if ledger is None:
      return []
    said = []
    if ledger.num_releases:
      plan, rounds = ledger.plan, ledger.num_releases
      if not is_planned:
        rounds = max(rounds, plan.num_rounds)
      charged = words.state_guarantee(
        plan.epsilon_after(rounds), plan.target_delta, plan.relation
      )
      said.append(
        f'Charged: {charged}.'
        if is_planned
        else f'All {rounds} rounds: {charged}.'
      )
    said += self._describe_paper()
    said += self._describe_source()
    if ledger.caveats:
      said.append(words.state_caveats(ledger.caveats))
    return said

  def _announce(self) -> None:
    """Says what a private run will promise; nothing where nobody looks."""
    if not sys.stderr.isatty():
      return
    promise = privacy.describe_plan(self.plan, self.caveats)
    saved = (
      'The outcome of each round is saved; --rounds_per_checkpoint has no '
      'effect.'
    )
    print(f'{self.config.algorithm}: {promise}\n{saved}', file=sys.stderr)

  def _write(self, ledger: privacy.PrivacyLedger) -> None:
    """Writes privacy.json, with all caveats that the ledger has."""
    aggregation = algorithms.describe_aggregation(self.config)
    if self.config.aggregator is not None:
      # Each round's record is, before the round is charged.
      has_record = ledger.num_releases and (
        records.UNCHECKED not in ledger.caveats
      )
      aggregation += (
        ' Its record was compared with the plan; what it does to the result '
        'was not.'
        if has_record
        else ' This was not checked.'
      )
    content = {
      **privacy.plan_to_json(self.plan, ledger.caveats),
      'aggregation': ' '.join([aggregation, *self._describe_paper()]),
    }
    if self.config.sampling == 'paper':
      content['paper_epsilon'] = algorithms.paper_plan(self.config).epsilon
    # It must hold if the run is killed: all its rounds count.
    for sentences in self._describe_source(as_planned=True):
      content['with_clipping_norm'] = sentences
    self.folder.write_json(self.folder.privacy, content)

  def _describe_paper(self) -> list[str]:
    if self.config.sampling != 'paper':
      return []
    epsilon = algorithms.paper_plan(self.config).epsilon
    return [
      f"The paper's epsilon, {rounding.format_up(epsilon)}, is that of Poisson "
      'samples, and does not hold for cohorts of a fixed size.'
    ]

  def _describe_source(self, *, as_planned: bool = False) -> list[str]:
    """Returns what the runs that gave c have cost, the last run first."""
    if not spending.find_sources(self.folder.ledger):
      return []
    try:
      ledger = privacy.read_ledger(self.folder.ledger)
      if as_planned:
        ledger = spending.as_planned(ledger)
      *sources, _ = spending.add_sources([ledger])
    except (OSError, ValueError) as e:
      # One has gone, or was damaged, while this run went on.
      return [
        'The clipping norm comes from runs before. What the private runs cost '
        f'together is not known: {e}'
      ]
    together = spending.describe_ledgers([ledger])
    spent = ' and '.join(
      f'epsilon {rounding.format_up(each.epsilon)} of {each.path}'
      for each in reversed(sources)
    )
    return [
      f'The clipping norm comes from runs before: {spent} is spent too. '
      f'{together}'.rstrip()
    ]


def find_caveats(
  asked: Config, task: Task, exact_norm: str | None, process: Any
) -> tuple[str, ...]:
  """Returns what takes the plan's guarantee from a run.

  Args:
    asked: The settings as they were given: a seed in them is known to whoever
      gave it. One that the run draws itself is not in them.
    task: The data.
    exact_norm: From what exact figure of the clients c comes; `None` if from
      none.
    process: The learning process, or its aggregation process.

  Returns:
    Main clauses; none for a run that is not private.
  """
  if not algorithms.is_private(asked):
    return ()
  reasons = {
    'the seed of the cohorts was given, and sampling hides no client from '
    'whoever knows it': asked.sampling != 'min_separation'
    and asked.sampling_seed is not None,
    "the run's files hold exact figures of the clients": (
      asked.simulation_diagnostics
    ),
    'the run was audited: canaries are among its clients, and its files say '
    'which of them took part': asked.audit_canaries is not None,
    "the clipping norm is an exact figure of the clients' data": (
      exact_norm is not None
    ),
    'the test set has examples of the clients, and what the model does on it '
    'is measured exactly': task.test_is_of_clients,
    'the clients were made up by a split of the examples, and nothing is '
    'promised to those whose data they are': task.partition.makes_up_clients,
    records.UNCHECKED: not records.has_record(process),
  }
  return tuple(reason for reason, applies in reasons.items() if applies)
