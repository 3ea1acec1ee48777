"""The ledger of a run: each release is charged before it is made."""

import dataclasses
import datetime
import functools
import os
import pathlib
import secrets
import threading
from collections.abc import Sequence
from typing import Any

from tff_clipping import argument_checks
from tff_clipping.privacy.ledger import ledger_contents, ledger_file
from tff_clipping.privacy.plans import plan_json
from tff_clipping.privacy.plans.base_plan import BasePlan

DamagedLedgerError = ledger_file.DamagedLedgerError
LedgerInUseError = ledger_file.LedgerInUseError


class BudgetExhaustedError(RuntimeError):
  """A release is refused, because it would pass the plan's target."""


class RoundChargedError(RuntimeError):
  """A round was charged, and the plan does not allow another draw of it."""


class PrivacyLedger:
  """Charges each release of a plan to a file, before it is made.

  The outcome of a round is saved under a random id. Then `charge` writes the id
  down, and the line is on the disk when it returns. Only then is the release
  made. A run that is resumed opens the same file with the same plan and goes on
  counting. `tff_clipping.programs.run_private_round` keeps this order.

  An outcome counts as charged only if its id is in the ledger. A charged round
  is never run again: its saved outcome is released. If this outcome is lost,
  the round is drawn anew, with another cohort and other noise, under the next
  number of its draw, and is charged again. A second release of one cohort would
  cost more than the accountant charges for a new cohort.

  A line cut short by a crash counts as a release, and a file that was changed,
  truncated or replaced is refused; see `ledger_file`. Several threads may use
  one ledger; a second process is refused.

  Methods that add a line raise TypeError for an argument of the wrong type,
  ValueError if the ledger is closed, DamagedLedgerError if the file was changed
  since it was opened, and OSError if the line could not be written.
  """

  def __init__(
    self,
    path: str | os.PathLike,
    plan: BasePlan,
    *,
    caveats: Sequence[str] = (),
  ) -> None:
    """Opens the ledger of a run, or starts it.

    Args:
      path: The file, `ledger.jsonl` in the run's folder, which must exist. A
        seal, `ledger.jsonl.seal`, is kept beside it and belongs to it.
      plan: The plan to charge. An existing ledger must be of the same plan, but
        for the last digits of numbers outside a strategy, and charges its own
        plan; see `read_plan`.
      caveats: Why the run does not have the plan's guarantee; see
        `describe_plan`. The ledger keeps these and all earlier ones.

    Raises:
      TypeError: If `plan` is not a plan.
      ValueError: If the ledger is of another plan.
      DamagedLedgerError: If the file is not what was written.
      LedgerInUseError: If it is open elsewhere.
      OSError: If the file system refuses.
    """
    if not isinstance(plan, BasePlan):
      raise TypeError(
        f'`plan` must be a PrivacyPlan or another BasePlan, found {plan!r}.'
      )
    self._guard = threading.Lock()
    self._file = ledger_file.LedgerFile(path)
    try:
      if not self._file.lines:
        self._file.append(
          {
            'kind': 'plan',
            'format': ledger_contents.FORMAT,
            # A copy of a ledger is not another run.
            'run_id': secrets.token_hex(16),
            'plan': plan_json.plan_to_json(plan, caveats),
          }
        )
      self._contents = ledger_contents.parse(path, self._file.lines)
      _check_format(self._contents)
      if self._file.torn:
        recovery = _build_recovery(self._contents)
        self._file.replace_torn(recovery)
        self._add(recovery)
      _check_same(self._contents, plan)
      # A round asks several times: of its line, and of its metrics.
      self._epsilon_after = functools.lru_cache(maxsize=2)(
        self.plan.epsilon_after
      )
      self.add_caveats(caveats)
    except BaseException:
      self._file.close()
      raise

  @property
  def path(self) -> pathlib.Path:
    """The file."""
    return self._file.path

  @property
  def plan(self) -> BasePlan:
    """The plan that is charged."""
    return self._contents.plan

  @property
  def caveats(self) -> tuple[str, ...]:
    """All caveats that the ledger was opened with, or that were added."""
    return self._contents.caveats

  @property
  def num_releases(self) -> int:
    """Releases charged, by this process and those before it."""
    return self._contents.num_releases

  @property
  def releases(self) -> tuple[ledger_contents.Release, ...]:
    """The releases charged, in order."""
    return self._contents.releases

  @property
  def run_id(self) -> str:
    """A random text; a copy of the ledger has the same."""
    return self._file.lines[0]['run_id']

  @property
  def rounds(self) -> list[int | None]:
    """The rounds charged, in order; None for a line that was cut short."""
    return [release.round_num for release in self.releases]

  @property
  def epsilon(self) -> float:
    """The epsilon of the releases so far, in the plan's accounting.

    It holds for a number of releases that was fixed before the run. If releases
    decided on the number, the epsilon of all planned rounds holds.
    """
    return self._epsilon_after(self.num_releases)

  def next_draw(self, round_num: int) -> int:
    """Returns how often a round was charged: the number of its next draw.

    A line that was cut short counts, unless its round is known.
    """
    return ledger_contents.next_draw(self.releases, round_num)

  def name_cut_short(
    self,
    release_id: str,
    *,
    round_num: int | None = None,
    draw: int | None = None,
  ) -> None:
    """Names the release of the last line, which a crash cut short.

    This line already charges for the release.

    Args:
      release_id: The id of the outcome that was being charged, or a new id if
        it is not known.
      round_num: Its round, if it is known.
      draw: The number of its draw, if it is known.

    Raises:
      ValueError: If the last line was not cut short, or its release is known,
        or the id was charged before.
    """
    _check_text('release_id', release_id)
    with self._guard:
      if not self.releases or self.releases[-1].id is not None:
        raise ValueError(
          'the last line of the ledger must have been cut short, found '
          f'{self.num_releases} releases that are known.'
        )
      self._check_new(release_id)
      self._append(
        ledger_contents.NAMED,
        num_releases=self.num_releases,
        id=release_id,
        round_num=round_num,
        draw=draw,
      )

  def check_cohorts(self, digest: str) -> None:
    """Raises unless the cohorts are those of earlier releases.

    If noise is correlated between rounds, or clients draw one round of an
    epoch, the cost of a client depends on the rounds in which it takes part.

    Args:
      digest: `ClientSampler.digest`, which is written down.

    Raises:
      ValueError: If earlier releases have another digest.
    """
    _check_text('digest', digest)
    with self._guard:
      cohorts = self._contents.cohorts
      if cohorts and cohorts[-1] == digest:
        return
      if cohorts and self.num_releases:
        raise ValueError(
          '`sampler` must be that of the releases before, with the same '
          '`client_ids` in the same order and the same `seed`, found another '
          'one: clients would take part sooner again, or more often, than the '
          'plan charges for.'
        )
      self._append(ledger_contents.COHORTS, digest=digest)

  def record_seed(self, digest: str) -> None:
    """Writes down the digest of the cohorts' seed, once.

    `compute_spending` refuses two ledgers with one seed, which cost more
    together than independent ones.

    Args:
      digest: `ClientSampler.seed_digest`.
    """
    _check_text('digest', digest)
    with self._guard:
      if digest not in self._contents.seeds:
        self._append(ledger_contents.SEED, digest=digest)

  def check_budget(self, round_num: int) -> None:
    """Raises if `charge` would refuse this round for the budget or its order.

    Raises:
      BudgetExhaustedError: If it would pass the plan's target.
      RoundChargedError: If the round is not the next, and noise is correlated
        between rounds, or clients draw one round of an epoch.
    """
    if not self.plan.allows_new_draws:
      self._check_next(round_num)
    if not self.plan.permits(self.num_releases + 1):
      limit = self.plan.target_epsilon
      if limit is None:
        limit = self.plan.epsilon
      cut_short = ''
      if None in self.rounds:
        cut_short = (
          f' ({self.rounds.count(None)} of them in a line that a crash cut '
          'short, which counts as one)'
        )
      raise BudgetExhaustedError(
        f'The budget is spent: {self.num_releases} releases{cut_short} have '
        f'cost epsilon {self.epsilon:.6g}; one more, of round {round_num}, '
        f'would pass {limit:.6g}. Keep the model of the last round that was '
        'charged; more rounds need a new plan, new cohorts (a new seed), new '
        'noise (a new state, by `initialize`) and a new ledger, whose epsilon '
        'adds to this one.'
      )

  def charge(self, round_num: int, release_id: str, *, draw: int = 0) -> float:
    """Charges the release of a round, before it is made.

    Args:
      round_num: The round, at least 0. With correlated noise and under random
        allocation, rounds come in order from 1.
      release_id: A random text, under which the outcome of the round is saved.
      draw: How often the round was charged before; see `next_draw`.

    Returns:
      The epsilon so far, this release included.

    Raises:
      ValueError: If an argument is out of range, or the id was charged before.
      RoundChargedError: As in `check_budget`.
      BudgetExhaustedError: As there. Nothing is written.

    After any error the release must not be made.
    """
    round_num = argument_checks.check_integer(
      'round_num', round_num, at_least=0, at_most=2**53
    )
    draw = argument_checks.check_integer(
      'draw', draw, at_least=0, at_most=2**53
    )
    _check_text('release_id', release_id)
    with self._guard:
      self._file.check()
      self._check_new(release_id)
      expected = self.next_draw(round_num)
      if draw != expected:
        raise ValueError(
          f'`draw` must be the next one of round {round_num}, {expected}, '
          f'found {draw}.'
        )
      self.check_budget(round_num)
      release = ledger_contents.Release(release_id, round_num, draw)
      epsilon = self._epsilon_after(self.num_releases + 1)
      self._append(**_build_release(self._contents, release, epsilon))
      return epsilon

  def add_caveats(self, caveats: Sequence[str]) -> None:
    """Writes down why the run does not have the plan's guarantee, each once.

    Caveats are main clauses; see `describe_plan`.
    """
    with self._guard:
      new = [*dict.fromkeys(c for c in caveats if c not in self.caveats)]
      if new:
        self._append(ledger_contents.CAVEATS, caveats=new)

  def close(self) -> None:
    """Closes the file, so that another process may open it."""
    self._file.close()

  def __enter__(self) -> 'PrivacyLedger':
    return self

  def __exit__(self, *unused) -> None:
    self.close()

  def _check_new(self, release_id: str) -> None:
    """Raises if an id was charged before."""
    if any(release.id == release_id for release in self.releases):
      raise ValueError(
        f'`release_id` must be new, found {release_id!r}, which was charged.'
      )

  def _check_next(self, round_num: int) -> None:
    """Raises unless a round is the next, where none can be drawn anew."""
    known = [each for each in self.rounds if each is not None]
    expected = max(known, default=0) + 1
    if round_num != expected or self.next_draw(round_num):
      raise RoundChargedError(
        f'Round {round_num} cannot be run: noise that is correlated between '
        'rounds, and the rounds of an epoch of random_allocation, cannot be '
        f'drawn anew, and {self.num_releases} releases were charged, of rounds '
        f'up to {expected - 1}. The run goes on from the outcome of the last '
        'of them alone. Without that outcome the run ends with the model that '
        'was released last.'
      )

  def _append(self, kind: str, **content: Any) -> None:
    """Writes a line, and then counts it."""
    line = {'kind': kind, **content}
    self._file.append(line)
    self._add(line)

  def _add(self, line: dict[str, Any]) -> None:
    """Counts a line that is written."""
    self._contents = ledger_contents.add_lines(self._contents, [line])


def _build_release(
  contents: ledger_contents.LedgerContents,
  release: ledger_contents.Release,
  epsilon: float,
) -> dict[str, Any]:
  """Returns the line of one more release."""
  now = datetime.datetime.now(datetime.timezone.utc)
  return {
    'kind': 'release',
    **release._asdict(),
    'time': now.isoformat(timespec='seconds'),
    'num_releases': contents.num_releases + 1,
    'epsilon': epsilon,
  }


def _build_recovery(contents: ledger_contents.LedgerContents) -> dict[str, Any]:
  """Returns the line in place of one cut short: charged, its round unknown."""
  number = contents.num_releases + 1
  if number > contents.plan.max_rounds:
    # No release is left: the line was one that charges for nothing.
    return {'kind': ledger_contents.CAVEATS, 'caveats': []}
  epsilon = contents.plan.epsilon_after(number)
  return _build_release(contents, ledger_contents.UNKNOWN, epsilon)


def _check_format(contents: ledger_contents.LedgerContents) -> None:
  """Raises if an earlier version wrote a ledger: it is left as it is."""
  if contents.format != ledger_contents.FORMAT:
    raise ValueError(
      f'The ledger {contents.path} is of version 0.2, whose runs version 0.2 '
      '(commit 44967cd3) continues. Start a new one, whose epsilon adds to '
      'that of this ledger.'
    )


def _check_same(
  contents: ledger_contents.LedgerContents, plan: BasePlan
) -> None:
  """Raises unless a ledger is of this plan."""
  names = [
    field.name
    for each in (plan, contents.plan)
    for field in dataclasses.fields(each)
  ]
  ledger_contents.check_plan(
    contents.path,
    contents.plan,
    {name: getattr(plan, name, None) for name in names},
  )


def _check_text(name: str, value: Any) -> None:
  """Raises if an argument is no string."""
  if not isinstance(value, str):
    raise TypeError(f'`{name}` must be a string, found {value!r}.')
