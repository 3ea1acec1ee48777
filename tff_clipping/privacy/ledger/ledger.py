"""What a run has spent, written down before each release."""

import dataclasses
import functools
import os
import re
import secrets
import threading
from collections.abc import Sequence
from typing import Any

from tff_clipping import argument_checks
from tff_clipping.privacy.ledger import ledger_contents, ledger_file
from tff_clipping.privacy.plans import base_plan

_DIGEST = re.compile('[0-9a-f]{64}')

DamagedLedgerError = ledger_file.DamagedLedgerError
LedgerInUseError = ledger_file.LedgerInUseError


class BudgetExhaustedError(RuntimeError):
  """A release was refused, because it would pass the plan's target."""


class ChangedReleaseError(RuntimeError):
  """A round was run again and gives other bits than those that were charged."""


class PrivacyLedger:
  """Charges each release of a plan to a file, before it is made.

  Call `charge` before a round's result leaves the trusted side, and make the
  release only when it has returned: the line is on the disk by then. A run that
  is resumed opens the same file with the same plan and goes on counting.

  The charge of a round holds the digest of what it releases. A round that is
  run again costs nothing if it releases the same bits: nobody learns anything
  new. Other bits from the same cohort must not be released, because a second
  look at one cohort costs more than the accountant charges for a new cohort:
  `charge` refuses them. The round is then drawn anew, with a cohort and noise
  that are independent of those before, under the next number of its draw, and
  charged. `tff_clipping.programs.training.private_rounds` does all of this.

  The ledger never counts for less than it held: a line cut short by a crash
  counts as a release, and a file that was changed, truncated or replaced is
  refused with the number of the line; see `ledger_file`.

  Guarded against several threads; a second process is refused.
  """

  def __init__(
    self,
    path: str | os.PathLike,
    plan: base_plan.BasePlan,
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
    if not isinstance(plan, base_plan.BasePlan):
      raise TypeError(
        f'`plan` must be a PrivacyPlan or another BasePlan, found {plan!r}.'
      )
    self._charge_by(plan)
    self._new_caveats = tuple(caveats)
    self._guard = threading.Lock()
    self._file = ledger_file.LedgerFile(
      path,
      self._build_header,
      lambda lines: self._build_recovery(path, lines),
    )
    try:
      self._check_plan(path)
      self._draws = ledger_contents.read_releases(path, self._file.lines)
      self._num_releases = len(ledger_contents.releases(self._file.lines))
      self.add_caveats(caveats)
    except BaseException:
      self._file.close()
      raise

  @property
  def plan(self) -> base_plan.BasePlan:
    """What is charged."""
    return self._plan

  @property
  def caveats(self) -> tuple[str, ...]:
    """Why the run does not have the plan's guarantee, as far as is known.

    Those that the ledger was ever opened with.
    """
    return ledger_contents.read_caveats(self._file.lines)

  @property
  def num_releases(self) -> int:
    """Releases charged, by this process and those before it."""
    return self._num_releases

  @property
  def run_id(self) -> str:
    """A random text of this ledger."""
    return self._file.lines[0]['run_id']

  @property
  def rounds(self) -> list[int | None]:
    """The rounds charged, in order; None for a line that was cut short."""
    lines = ledger_contents.releases(self._file.lines)
    return [line['round_num'] for line in lines]

  @property
  def epsilon(self) -> float:
    """The epsilon of the releases so far, in the plan's accounting.

    Holds for a number of releases that was settled before the run. Where what
    was released decided on it, the epsilon of all planned rounds holds.
    """
    return self._epsilon_after(self.num_releases)

  @property
  def actual_epsilon(self) -> float:
    """What the sampler really gives so far; differs under 'paper' only."""
    return self._actual_epsilon_after(self.num_releases)

  def last_draw(self, round_num: int) -> int | None:
    """Returns the number of the last draw of a round; None if it has none.

    Args:
      round_num: The round.
    """
    draws = self._draws.get(round_num)
    return len(draws) - 1 if draws else None

  def last_environment(self, round_num: int) -> str | None:
    """Returns where the last draw of a round was computed.

    Args:
      round_num: The round.

    Returns:
      The `environment` with which it was charged; `None` if there is none.
    """
    draws = self._draws.get(round_num)
    return draws[-1].get('environment') if draws else None

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
      kept = ledger_contents.read_digests(
        self._file.lines, ledger_contents.COHORTS
      )
      if not kept or (kept[-1] != digest and not self._num_releases):
        self._file.append({'kind': ledger_contents.COHORTS, 'digest': digest})
      elif kept[-1] != digest:
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
      if digest not in ledger_contents.read_digests(
        self._file.lines, ledger_contents.SEED
      ):
        self._file.append({'kind': ledger_contents.SEED, 'digest': digest})

  def check_budget(self, round_num: int) -> None:
    """Raises if one more release would pass the plan's target, or be refused.

    Args:
      round_num: The round of the release.

    Raises:
      BudgetExhaustedError: If it would.
      ValueError: If a round was left out, and the plan does not allow it: noise
        is correlated between rounds, or clients draw one round of an epoch.
    """
    self._check_next(round_num)
    if not self._plan.permits(self.num_releases + 1):
      limit = self._plan.target_epsilon
      if limit is None:
        limit = self._plan.epsilon
      really = (
        f' as the paper charges, and really {self.actual_epsilon:.6g}'
        if self._plan.sampling == 'paper'
        else ''
      )
      cut_short = self.rounds.count(None)
      known = (
        f' ({cut_short} of them in a line that a crash cut short, which counts '
        'as one)'
        if cut_short
        else ''
      )
      raise BudgetExhaustedError(
        f'The budget is spent: {self.num_releases} releases{known} have cost '
        f'epsilon {self.epsilon:.6g}{really}; one more, of round {round_num}, '
        f'would pass {limit:.6g}. Keep the model of the last round that was '
        'charged; more rounds need a new plan, new cohorts (a new seed), new '
        'noise (a new state, by `initialize`) and a new ledger, whose epsilon '
        'adds to this one.'
      )

  def charge(
    self,
    round_num: int,
    digest: str,
    *,
    draw: int = 0,
    environment: str | None = None,
  ) -> float:
    """Charges the release of a round, before it is made.

    Args:
      round_num: The round, at least 0; for noise that is correlated between
        rounds, and random allocation, 1, and then the one after the last.
      digest: The SHA-256 digest, in hexadecimal, of all that is released of the
        round. The release that is charged last for this round and draw may be
        made again with the same digest, at no cost.
      draw: The number of the draw of the round's cohort and noise: that of its
        last release, or one more for a new one; 0 for the first.
      environment: Where it was computed, a text such as
        `tff_clipping.runtime.environment.describe` returns; `None` if that is
        not known. It is written down, for `last_environment`.

    Returns:
      The epsilon so far, this release included.

    Raises:
      TypeError: If an argument is of the wrong kind.
      ValueError: If an argument is out of range, or the ledger is closed.
      ChangedReleaseError: If this draw was charged with another digest. It must
        not be released.
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
    _check_text('digest', digest)
    if not _DIGEST.fullmatch(digest):
      raise ValueError(
        f'`digest` must be 64 hexadecimal digits, found {digest!r}.'
      )
    if environment is not None:
      _check_text('environment', environment)
    with self._guard:
      self._file.check()
      draws = self._draws.get(round_num, [])
      if draws and draw == len(draws) - 1:
        if digest == draws[-1].get('digest'):
          return self.epsilon
        advice = (
          'Draw a new cohort and new noise.'
          if self._plan.allows_new_draws
          else 'Noise that is correlated between rounds or drawn by clients, '
          'and the rounds of an epoch of random_allocation, cannot be drawn '
          'anew: the run ends with the model that was released last.'
        )
        raise ChangedReleaseError(
          f'Round {round_num}, run again, gives another result than the one '
          f'that was charged (draw {draw}): it must not be released. '
          f'{advice}'
        )
      if draw and not self._plan.allows_new_draws:
        raise ValueError(
          f'`draw` must be 0 for a {type(self._plan).__name__}, found {draw}.'
        )
      if draw != len(draws):
        last = f', or its last, {len(draws) - 1}' if draws else ''
        raise ValueError(
          f'`draw` must be the next one of round {round_num}, {len(draws)}'
          f'{last}, found {draw}.'
        )
      self.check_budget(round_num)
      charged = self.num_releases + 1
      epsilon = self._epsilon_after(charged)
      line = self._build_release(charged, round_num, draw, digest)
      if environment is not None:
        line['environment'] = environment
      self._file.append(line)
      self._num_releases = charged
      self._draws.setdefault(round_num, []).append(line)
      return epsilon

  def _check_next(self, round_num: int) -> None:
    """Raises if a round was left out where no round can be drawn anew.

    Who takes part again, and when, would not be what the plan assumes.
    """
    if self._plan.allows_new_draws:
      return
    rounds = [each for each in self._draws if each is not None]
    expected = max(rounds, default=0) + 1
    if round_num != expected:
      raise ValueError(
        f'`round_num` must be {expected}, the round after the last that was '
        'charged, for noise that is correlated between rounds and for '
        f'random_allocation, found {round_num}.'
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
      'plan': self._plan.to_json(self._new_caveats),
    }

  def _build_release(
    self,
    number: int,
    round_num: int | None,
    draw: int | None,
    digest: str | None,
  ) -> dict[str, Any]:
    """A release's line."""
    line = {
      'kind': 'release',
      'round_num': round_num,
      'draw': draw,
      'digest': digest,
      'num_releases': number,
      'epsilon': self._epsilon_after(number),
    }
    if self._plan.sampling == 'paper':
      line['actual_epsilon'] = self._actual_epsilon_after(number)
    return line

  def _build_recovery(
    self, path: str | os.PathLike, lines: Sequence[dict[str, Any]]
  ) -> dict[str, Any]:
    """The line for one that was cut short: charged, its round not known."""
    number = len(ledger_contents.releases(lines)) + 1
    if number > ledger_contents.parse_plan(path, lines[0]).max_rounds:
      # There is no such release: it was a line that charges for nothing.
      return {'kind': ledger_contents.CAVEATS, 'caveats': []}
    return self._build_release(number, None, None, None)

  def add_caveats(self, caveats: Sequence[str]) -> None:
    """Writes down why the run does not have the plan's guarantee.

    Args:
      caveats: Main clauses, for `PrivacyPlan.describe`; those that the ledger
        holds already are not written again.
    """
    with self._guard:
      new = [each for each in caveats if each not in self.caveats]
      if new:
        self._file.append({'kind': ledger_contents.CAVEATS, 'caveats': new})

  def _check_plan(self, path: str | os.PathLike) -> None:
    """Raises unless the ledger's first line is this plan."""
    found = ledger_contents.parse_plan(path, self._file.lines[0])
    if 'run_id' not in self._file.lines[0]:
      raise ValueError(
        f'The ledger {os.fspath(path)} is of an earlier version: its noise may '
        'be that of another run. Start a new one, whose epsilon adds to that '
        'of this ledger.'
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

  def _charge_by(self, plan: base_plan.BasePlan) -> None:
    """Takes a plan as that which is charged."""
    self._plan = plan
    # A round asks several times: of its line, and of its metrics.
    self._epsilon_after = functools.lru_cache(maxsize=2)(plan.epsilon_after)
    self._actual_epsilon_after = functools.lru_cache(maxsize=2)(
      plan.actual_epsilon_after
    )


def _check_text(name: str, value: Any) -> None:
  """Raises if an argument is no string."""
  if not isinstance(value, str):
    raise TypeError(f'`{name}` must be a string, found {value!r}.')
