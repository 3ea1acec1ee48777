"""What a run has spent, written down before each release."""

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
  """A release was refused, because it would pass the plan's target."""


class RoundChargedError(RuntimeError):
  """A round was charged, and the plan does not allow another draw of it."""


class PrivacyLedger:
  """Charges each release of a plan to a file, before it is made.

  The outcome of a round is saved under a random id. Then `charge` writes the id
  down, and the line is on the disk when it returns. Only then is the release
  made. A run that is resumed opens the same file with the same plan and goes on
  counting. `tff_clipping.programs.run_private_round` keeps this order.

  An outcome counts as charged only if its id is in the ledger. A charged round
  is never run again: the outcome that was saved is released. Where that outcome
  is lost, the round is drawn anew, with another cohort and other noise, under
  the next number of its draw, and is charged again. A second look at one cohort
  would cost more than the accountant charges for a new cohort.

  The ledger never counts for less than it held: a line cut short by a crash
  counts as a release, and a file that was changed, truncated or replaced is
  refused with the number of the line; see `ledger_file`.

  Guarded against several threads; a second process is refused.
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
      plan: What is charged. An existing ledger must be of the same plan, and
        charges its own: of numbers, the last digits do not count. A strategy is
        the same in all digits; see `read_plan`.
      caveats: Why the run does not have the plan's guarantee; see
        `PrivacyPlan.describe`. The ledger keeps them, and those of before.

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
    self._charge_by(plan)
    self._new_caveats = tuple(caveats)
    self._guard = threading.Lock()
    self._cohorts: str | None = None
    self._file = ledger_file.LedgerFile(
      path,
      self._build_header,
      lambda lines: self._build_recovery(path, lines),
    )
    try:
      self._take(ledger_contents.parse(path, self._file.lines))
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
    """What is charged."""
    return self._plan

  @property
  def caveats(self) -> tuple[str, ...]:
    """Why the run does not have the plan's guarantee, as far as is known.

    Those that the ledger was ever opened with.
    """
    return tuple(self._caveats)

  @property
  def num_releases(self) -> int:
    """Releases charged, by this process and those before it."""
    return len(self._releases)

  @property
  def releases(self) -> tuple[ledger_contents.Release, ...]:
    """The releases charged, in order."""
    return tuple(self._releases)

  @property
  def run_id(self) -> str:
    """A random text of this ledger."""
    return self._file.lines[0]['run_id']

  @property
  def rounds(self) -> list[int | None]:
    """The rounds charged, in order; None for a line that was cut short."""
    return [release.round_num for release in self._releases]

  @property
  def epsilon(self) -> float:
    """The epsilon of the releases so far, in the plan's accounting.

    Holds for a number of releases that was settled before the run. Where what
    was released decided on it, the epsilon of all planned rounds holds.
    """
    return self._epsilon_after(self.num_releases)

  def next_draw(self, round_num: int) -> int:
    """Returns the number of the next draw of a round.

    That is how often the round was charged before. A line that was cut short,
    and whose round is not known, may have been of this round.

    Args:
      round_num: The round.
    """
    return ledger_contents.next_draw(self._releases, round_num)

  def name_cut_short(
    self,
    release_id: str,
    *,
    round_num: int | None = None,
    draw: int | None = None,
  ) -> None:
    """Writes down which release the line was that a crash cut short.

    That line is the last. It charges for the release already.

    Args:
      release_id: The id of the outcome that was being charged; a new one where
        that is not known.
      round_num: Its round; `None` where that is not known.
      draw: The number of its draw; `None` where that is not known.

    Raises:
      TypeError: If an argument is of the wrong kind.
      ValueError: If the last line was not cut short, or its release is known,
        or the id was charged before.
      OSError: If the line could not be written.
    """
    _check_text('release_id', release_id)
    with self._guard:
      if not self._releases or self._releases[-1].id is not None:
        raise ValueError(
          'the last line of the ledger must have been cut short, found '
          f'{self.num_releases} releases that are known.'
        )
      self._check_new(release_id)
      line = {
        'kind': ledger_contents.NAMED,
        'num_releases': self.num_releases,
        'id': release_id,
        'round_num': round_num,
        'draw': draw,
      }
      self._file.append(line)
      self._releases[-1] = ledger_contents.Release(release_id, round_num, draw)

  def check_cohorts(self, digest: str) -> None:
    """Raises unless the cohorts are those of the releases before.

    Where noise is correlated between rounds, or clients draw one round of an
    epoch, what a client costs depends on the rounds in which it takes part. The
    digest is written down.

    Args:
      digest: That of what decides all cohorts; `ClientSampler.digest`.

    Raises:
      TypeError: If it is not a string.
      ValueError: If it is another one, or the ledger is closed.
      OSError: If the line could not be written.
    """
    _check_text('digest', digest)
    with self._guard:
      if self._cohorts == digest:
        return
      if self._cohorts is None or not self.num_releases:
        self._file.append({'kind': ledger_contents.COHORTS, 'digest': digest})
        self._cohorts = digest
      else:
        raise ValueError(
          '`sampler` must be that of the releases before, with the same '
          '`client_ids` in the same order and the same `seed`, found another '
          'one: clients would take part sooner again, or more often, than the '
          'plan charges for.'
        )

  def record_seed(self, digest: str) -> None:
    """Writes down by what seed the cohorts are drawn, once.

    Two ledgers with one seed cost more together than independent ones:
    `compute_spending` looks for it.

    Args:
      digest: That of the seed; `ClientSampler.seed_digest`.

    Raises:
      TypeError: If it is not a string.
      ValueError: If the ledger is closed.
      OSError: If the line could not be written.
    """
    _check_text('digest', digest)
    with self._guard:
      if digest not in self._seeds:
        self._file.append({'kind': ledger_contents.SEED, 'digest': digest})
        self._seeds.append(digest)

  def check_budget(self, round_num: int) -> None:
    """Raises if one more release would pass the plan's target, or be refused.

    Args:
      round_num: The round of the release.

    Raises:
      BudgetExhaustedError: If it would.
      RoundChargedError: If the round is not the next, and the plan does not
        allow that: noise is correlated between rounds, or clients draw one
        round of an epoch.
    """
    self._check_next(round_num)
    if not self._plan.permits(self.num_releases + 1):
      limit = self._plan.target_epsilon
      if limit is None:
        limit = self._plan.epsilon
      cut_short = self.rounds.count(None)
      known = (
        f' ({cut_short} of them in a line that a crash cut short, which counts '
        'as one)'
        if cut_short
        else ''
      )
      raise BudgetExhaustedError(
        f'The budget is spent: {self.num_releases} releases{known} have cost '
        f'epsilon {self.epsilon:.6g}; one more, of round {round_num}, '
        f'would pass {limit:.6g}. Keep the model of the last round that was '
        'charged; more rounds need a new plan, new cohorts (a new seed), new '
        'noise (a new state, by `initialize`) and a new ledger, whose epsilon '
        'adds to this one.'
      )

  def charge(self, round_num: int, release_id: str, *, draw: int = 0) -> float:
    """Charges the release of a round, before it is made.

    Args:
      round_num: The round, at least 0; for noise that is correlated between
        rounds, and random allocation, 1, and then the one after the last.
      release_id: A random text, under which the outcome of the round is saved.
      draw: How often the round was charged before; see `next_draw`.

    Returns:
      The epsilon so far, this release included.

    Raises:
      TypeError: If an argument is of the wrong kind.
      ValueError: If an argument is out of range, the id was charged before, or
        the ledger is closed.
      RoundChargedError: If the round was charged before, and the plan does not
        allow another draw of it.
      BudgetExhaustedError: If the release would pass the plan's target. Nothing
        is written, and it must not be made.
      DamagedLedgerError: If the file was changed since it was opened.
      OSError: If the line could not be written. The release must not be made.
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
      line = self._build_release(self.num_releases + 1, release)
      self._file.append(line)
      self._releases.append(release)
      return line['epsilon']

  def _check_new(self, release_id: str) -> None:
    """Raises if an id was charged before."""
    if any(release.id == release_id for release in self._releases):
      raise ValueError(
        f'`release_id` must be new, found {release_id!r}, which was charged.'
      )

  def _check_next(self, round_num: int) -> None:
    """Raises unless a round is the next, where none can be drawn anew.

    Who takes part again, and when, would not be what the plan assumes.
    """
    if self._plan.allows_new_draws:
      return
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

  def close(self) -> None:
    """Closes the file, so that another process may open it."""
    self._file.close()

  def __enter__(self) -> 'PrivacyLedger':
    return self

  def __exit__(self, *unused) -> None:
    self.close()

  def _build_header(self) -> dict[str, Any]:
    """The first line: the plan."""
    return {
      'kind': 'plan',
      'format': ledger_contents.FORMAT,
      # A copy of a ledger is not another run.
      'run_id': secrets.token_hex(16),
      'plan': plan_json.plan_to_json(self._plan, self._new_caveats),
    }

  def _build_release(
    self, number: int, release: ledger_contents.Release
  ) -> dict[str, Any]:
    """A release's line."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
      'kind': 'release',
      **release._asdict(),
      'time': now.isoformat(timespec='seconds'),
      'num_releases': number,
      'epsilon': self._epsilon_after(number),
    }

  def _build_recovery(
    self, path: str | os.PathLike, lines: Sequence[dict[str, Any]]
  ) -> dict[str, Any]:
    """The line for one that was cut short: charged, its round not known."""
    contents = ledger_contents.parse(path, lines)
    number = contents.num_releases + 1
    if number > contents.plan.max_rounds:
      # There is no such release: it was a line that charges for nothing.
      return {'kind': ledger_contents.CAVEATS, 'caveats': []}
    return self._build_release(number, ledger_contents.UNKNOWN)

  def add_caveats(self, caveats: Sequence[str]) -> None:
    """Writes down why the run does not have the plan's guarantee.

    Args:
      caveats: Main clauses, for `PrivacyPlan.describe`; those that the ledger
        holds already are not written again.
    """
    with self._guard:
      new = [each for each in caveats if each not in self._caveats]
      if new:
        self._file.append({'kind': ledger_contents.CAVEATS, 'caveats': new})
        self._caveats += dict.fromkeys(new)

  def _take(self, contents: ledger_contents.LedgerContents) -> None:
    """Goes on with what the file holds, if its plan is this one."""
    path, found = contents.path, contents.plan
    if contents.format != ledger_contents.FORMAT:
      raise ValueError(
        f'The ledger {path} is of version 0.2, whose runs version 0.2 (commit '
        '44967cd3) continues. Start a new one, whose epsilon adds to that of '
        'this ledger.'
      )
    names = [
      field.name
      for plan in (self._plan, found)
      for field in dataclasses.fields(plan)
    ]
    ledger_contents.check_plan(
      path, found, {name: getattr(self._plan, name, None) for name in names}
    )
    self._charge_by(found)
    self._releases: list[ledger_contents.Release] = [*contents.releases]
    self._caveats: list[str] = [*contents.caveats]
    self._seeds: list[str] = [*contents.seeds]
    if contents.cohorts:
      self._cohorts = contents.cohorts[-1]

  def _charge_by(self, plan: BasePlan) -> None:
    """Takes a plan as that which is charged."""
    self._plan = plan
    # A round asks several times: of its line, and of its metrics.
    self._epsilon_after = functools.lru_cache(maxsize=2)(plan.epsilon_after)


def _check_text(name: str, value: Any) -> None:
  """Raises if an argument is no string."""
  if not isinstance(value, str):
    raise TypeError(f'`{name}` must be a string, found {value!r}.')
