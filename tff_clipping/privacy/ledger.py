"""What a run has spent, written down before each release."""

import os
import threading
from typing import Any

from tff_clipping.privacy import arguments, correlated_plan, ledger_file
from tff_clipping.privacy import plan as plan_lib

_FORMAT = 1

_Plan = plan_lib.PrivacyPlan | correlated_plan.CorrelatedNoisePlan

DamagedLedgerError = ledger_file.DamagedLedgerError
LedgerInUseError = ledger_file.LedgerInUseError


class BudgetExhaustedError(RuntimeError):
  """A release was refused, because it would pass the plan's target."""


class PrivacyLedger:
  """Charges each release of a plan to a file, before it is made.

  Call `charge` before a round's result leaves the trusted side, and make the
  release only when it has returned: the line is on the disk by then. A round
  that is run again is charged again, since its noise is fresh. A run that is
  resumed opens the same file with the same plan and goes on counting.

  The ledger never counts for less than it held: a line cut short by a crash
  counts as a release, and a file that was changed, truncated or replaced is
  refused with the number of the line; see `ledger_file`.

  Guarded against several threads; a second process is refused.
  """

  def __init__(self, path: str | os.PathLike, plan: _Plan) -> None:
    """Opens the ledger of a run, or starts it.

    Args:
      path: The file, `ledger.jsonl` in the run's folder, which must exist. A
        seal, `ledger.jsonl.seal`, is kept beside it and belongs to it.
      plan: What is charged. An existing ledger must be of the same plan.

    Raises:
      TypeError: If `plan` is no plan.
      ValueError: If the ledger is of another plan.
      DamagedLedgerError: If the file is not what was written.
      LedgerInUseError: If it is open elsewhere.
      OSError: If the file system refuses.
    """
    if not isinstance(plan, _Plan):
      raise TypeError(
        '`plan` must be a PrivacyPlan or a CorrelatedNoisePlan, found '
        f'{plan!r}.'
      )
    self._plan = plan
    self._guard = threading.Lock()
    self._file = ledger_file.LedgerFile(
      path, self._build_header, self._build_recovery
    )
    try:
      self._check_plan(path)
      self._check_releases(path)
    except BaseException:
      self._file.close()
      raise

  @property
  def plan(self) -> _Plan:
    """What is charged."""
    return self._plan

  @property
  def num_releases(self) -> int:
    """Releases charged, by this process and those before it."""
    return self._file.num_lines - 1

  @property
  def rounds(self) -> list[int | None]:
    """The rounds charged, in order; None for a line that was cut short."""
    return [line['round_num'] for line in self._file.lines[1:]]

  @property
  def epsilon(self) -> float:
    """The epsilon of the releases so far, in the plan's accounting."""
    return self._plan.epsilon_after(self.num_releases)

  @property
  def actual_epsilon(self) -> float:
    """What the sampler really gives so far; differs under 'paper' only."""
    return self._plan.actual_epsilon_after(self.num_releases)

  def charge(self, round_num: int) -> float:
    """Charges the release of a round, before it is made.

    Args:
      round_num: The round, at least 0. The same round twice is charged twice.

    Returns:
      The epsilon so far, this release included.

    Raises:
      TypeError: If `round_num` is not an integer.
      ValueError: If it is negative, or the ledger is closed.
      BudgetExhaustedError: If the release would pass the plan's target. Nothing
        is written, and it must not be made.
      DamagedLedgerError: If the file was changed since it was opened.
      OSError: If the line could not be written. The release must not be made.
    """
    round_num = arguments.check_integer(
      'round_num', round_num, at_least=0, at_most=2**53
    )
    with self._guard:
      charged = self.num_releases + 1
      if not self._plan.permits(charged):
        limit = self._plan.target_epsilon or self._plan.epsilon
        raise BudgetExhaustedError(
          f'The budget is spent: {self.num_releases} releases have cost '
          f'epsilon {self.epsilon:.6g}; one more, of round {round_num}, would '
          f'pass {limit:.6g}. Keep the model of the last round that was '
          'charged; more rounds need a new plan and a new ledger, whose '
          'epsilon adds to this one.'
        )
      epsilon = self._plan.epsilon_after(charged)
      self._file.append(self._build_release(charged, round_num))
      return epsilon

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
      'format': _FORMAT,
      'plan': self._plan.to_json(),
    }

  def _build_release(self, number: int, round_num: int | None):
    """A release's line."""
    line = {
      'kind': 'release',
      'round_num': round_num,
      'num_releases': number,
      'epsilon': self._plan.epsilon_after(number),
    }
    if self._plan.sampling == 'paper':
      line['actual_epsilon'] = self._plan.actual_epsilon_after(number)
    return line

  def _build_recovery(self, line_number: int) -> dict[str, Any]:
    """The line for one that was cut short: charged, its round not known."""
    return self._build_release(line_number - 1, None)

  def _check_plan(self, path: str | os.PathLike) -> None:
    """Raises unless the ledger's first line is this plan."""
    header = self._file.lines[0]
    if header.get('kind') != 'plan' or header.get('format') != _FORMAT:
      raise DamagedLedgerError(
        f'Line 1 of {os.fspath(path)} is damaged: it is not the plan of a '
        'ledger.'
      )
    try:
      found = _read_plan(header['plan'])
    except (KeyError, TypeError, ValueError) as error:
      raise DamagedLedgerError(
        f'Line 1 of {os.fspath(path)} is damaged: {error}'
      ) from error
    if found != self._plan:
      differences = ', '.join(
        f'{name} {value!r} against {getattr(self._plan, name, None)!r}'
        for name, value in vars(found).items()
        if name in found.__dataclass_fields__
        and value != getattr(self._plan, name, None)
      )
      raise ValueError(
        f'`plan` must be that of the ledger {os.fspath(path)}, found other '
        f'values: {differences}. Resume with the same plan, or start a new '
        'ledger.'
      )

  def _check_releases(self, path: str | os.PathLike) -> None:
    """Raises unless the other lines are releases, counted from 1."""
    for number, line in enumerate(self._file.lines[1:], start=1):
      if line.get('kind') != 'release' or line.get('num_releases') != number:
        raise DamagedLedgerError(
          f'Line {number + 1} of {os.fspath(path)} is damaged: it is not '
          f'release {number}.'
        )


def _read_plan(value: dict[str, Any]) -> _Plan:
  """Returns the plan that a ledger's first line holds."""
  if value.get('mechanism') == 'correlated_noise':
    return correlated_plan.CorrelatedNoisePlan.from_json(value)
  return plan_lib.PrivacyPlan.from_json(value)
