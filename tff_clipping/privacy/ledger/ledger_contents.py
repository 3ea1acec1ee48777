"""The contents of a ledger: its plan and its releases."""

import collections
import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tff_clipping import gone
from tff_clipping.privacy.accounting import slack
from tff_clipping.privacy.ledger import ledger_file
from tff_clipping.privacy.plans import plan_json
from tff_clipping.privacy.plans.base_plan import BasePlan

FORMAT = 3
# The format of version 0.2, which is read for what was spent.
_OLD_FORMAT = 2
# The kinds of lines that charge for nothing: later caveats, digests of cohorts
# and seeds, and the release of a line that was cut short.
CAVEATS = 'caveats'
COHORTS = 'cohorts'
SEED = 'seed'
NAMED = 'named'

_NAME = 'ledger.jsonl'


class Release(NamedTuple):
  """A release that was charged.

  Attributes:
    id: The random text under which its outcome is saved; `None` in ledgers of
      0.2, and for a line that was cut short and was not named.
    round_num: Its round; `None` for such a line.
    draw: How often the round was charged before; `None` for such a line.
  """

  id: str | None
  round_num: int | None
  draw: int | None


UNKNOWN = Release(None, None, None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LedgerContents:
  """The plan of a run and its releases so far.

  Attributes:
    path: The ledger.
    plan: The plan that is charged.
    caveats: Why the run does not have the plan's guarantee, each reason once.
    run_id: A random text; `None` in a ledger of an earlier version. A copy of
      the ledger has the same.
    releases: The releases that were charged, in order, one that was cut short
      included.
    seeds: Digests of the seeds of samplers.
    cohorts: Digests of samplers; the last one counts.
    format: The format of the file.
  """

  path: pathlib.Path
  plan: BasePlan
  caveats: tuple[str, ...]
  run_id: str | None
  releases: tuple[Release, ...]
  seeds: tuple[str, ...] = ()
  cohorts: tuple[str, ...] = ()
  format: int = FORMAT

  @property
  def num_releases(self) -> int:
    """Releases that were charged, one that was cut short included."""
    return len(self.releases)

  @property
  def epsilon(self) -> float:
    """The epsilon of the releases so far, in the plan's accounting."""
    return self.plan.epsilon_after(self.num_releases)

  @property
  def promised(self) -> BasePlan:
    """The plan for all rounds that it permits, or that were charged if more.

    A line that was cut short after the last round was charged is one more.
    """
    num_rounds = max(self.plan.permitted_rounds, self.num_releases, 1)
    return dataclasses.replace(
      self.plan, num_rounds=num_rounds, target_epsilon=None
    )


def read_ledger(path: str | os.PathLike) -> LedgerContents:
  """Reads a ledger and leaves it as it is, also while a run writes to it.

  Args:
    path: The ledger, or the folder of a run, which holds it as `ledger.jsonl`.

  Raises:
    DamagedLedgerError: If the file is not as it was written.
    ValueError: If nothing was written yet, a version before 0.2 wrote it, or a
      folder has no ledger.
    OSError: If the file cannot be read.
  """
  path = pathlib.Path(path)
  if path.is_dir():
    if not (path / _NAME).exists():
      raise ValueError(
        f'The folder {path} has no {_NAME}: it is not that of a private run.'
      )
    path = path / _NAME
  lines, is_cut_short = ledger_file.read_lines(path)
  if not lines:
    raise ValueError(f'The ledger {path} is empty: nothing was charged.')
  contents = parse(path, lines)
  # A plan with no more rounds has no release that was cut short.
  if is_cut_short and contents.num_releases < contents.plan.max_rounds:
    releases = (*contents.releases, UNKNOWN)
    contents = dataclasses.replace(contents, releases=releases)
  return contents


def read_plan(path: str | os.PathLike, **settings: Any) -> BasePlan | None:
  """Returns the plan of a run that goes on; `None` for one that is to begin.

  Noise and strategy come from a search, which may find others elsewhere or with
  other versions. So a run that goes on takes the plan of its ledger:

    settings = dict(num_clients=1000, ..., target_epsilon=4.0)
    plan = privacy.read_plan(run_dir / 'ledger.jsonl', **settings)
    if plan is None:
      plan = privacy.PrivacyPlan.from_target_epsilon(**settings)

  The sampler, the aggregator and the ledger are then made from `plan`.

  Args:
    path: The ledger, or the folder of the run. Neither need exist.
    **settings: Attributes that the plan must have, but for the last digits of
      numbers; see `slack`. `None` stands for any value.

  Raises:
    DamagedLedgerError: If the ledger is not as it was written.
    ValueError: If its plan has other settings, or a version before 0.2 wrote
      it.
    OSError: If the file cannot be read.
  """
  path = pathlib.Path(path)
  if path.is_dir():
    path = path / _NAME
  if not path.exists():
    return None
  lines, _ = ledger_file.read_lines(path)
  if not lines:
    return None
  plan = _parse_plan(path, lines[0])
  check_plan(path, plan, {k: v for k, v in settings.items() if v is not None})
  return plan


def check_plan(
  path: str | os.PathLike, plan: BasePlan, settings: Mapping[str, Any]
) -> None:
  """Raises ValueError unless a ledger's plan has these attributes."""
  differences = ', '.join(
    f'`{name}` is {value!r} and was {getattr(plan, name, None)!r}'
    for name, value in settings.items()
    if not slack.agree(value, getattr(plan, name, None))
  )
  if differences:
    raise ValueError(
      f'`plan` must be that of the ledger {os.fspath(path)}, found other '
      f'values: {differences}. Resume with the same settings and the plan that '
      '`privacy.read_plan` returns, which was searched for once, or begin a '
      'new run: a new ledger, new cohorts (a new seed) and new noise (a new '
      'state, by `initialize`, and no checkpoints of this one).'
    )


def parse(
  path: str | os.PathLike, lines: Sequence[dict[str, Any]]
) -> LedgerContents:
  """Returns the contents of a ledger from its lines.

  Raises:
    DamagedLedgerError: If a line is not what it should be.
    ValueError: If a version before 0.2 wrote the ledger, or its plan is of a
      kind that this version does not have.
  """
  header = lines[0]
  plan = _parse_plan(path, header)
  caveats = (*plan.caveats, *header['plan'].get('caveats', ()))
  contents = LedgerContents(
    path=pathlib.Path(path),
    plan=plan,
    caveats=tuple(dict.fromkeys(caveats)),
    run_id=header.get('run_id'),
    releases=(),
    format=header['format'],
  )
  return add_lines(contents, lines[1:])


def add_lines(
  contents: LedgerContents, lines: Sequence[Mapping[str, Any]]
) -> LedgerContents:
  """Returns the contents of a ledger with more lines.

  Raises:
    DamagedLedgerError: If a line is not what it should be.
  """
  caveats = dict.fromkeys(contents.caveats)
  seeds, cohorts = [*contents.seeds], [*contents.cohorts]
  releases = [*contents.releases]
  # How often each round was charged, by its number. Under `None`: the lines
  # that were cut short, each of which may be of any round.
  charged = collections.Counter(each.round_num for each in releases)
  for line in lines:
    kind = line.get('kind')
    if kind == CAVEATS:
      caveats.update(dict.fromkeys(line.get('caveats', ())))
      continue
    if kind in (COHORTS, SEED):
      digests = cohorts if kind == COHORTS else seeds
      digests.append(str(line.get('digest')))
      continue
    release = Release(line.get('id'), line.get('round_num'), line.get('draw'))
    if kind == NAMED:
      # It says which release the line before it was.
      is_right = releases[-1:] == [UNKNOWN]
      charged.subtract(each.round_num for each in releases[-1:])
      del releases[-1:]
    else:
      draw = charged[release.round_num]
      # Version 0.2 did not count a line that was cut short.
      if contents.format != _OLD_FORMAT:
        draw += charged[None]
      is_right = kind == 'release' and (
        release == UNKNOWN or release.draw == draw
      )
    releases.append(release)
    charged[release.round_num] += 1
    if not is_right or line.get('num_releases') != len(releases):
      raise ledger_file.DamagedLedgerError(
        f'Line {line.get("line")} of {contents.path} is damaged: it is not '
        f'release {len(releases)}.'
      )
  return dataclasses.replace(
    contents,
    caveats=tuple(caveats),
    seeds=tuple(seeds),
    cohorts=tuple(cohorts),
    releases=tuple(releases),
  )


def next_draw(releases: Sequence[Release], round_num: int | None) -> int:
  """Returns the number of the next draw of a round; see `PrivacyLedger`."""
  return sum(each.round_num in (None, round_num) for each in releases)


def _parse_plan(path: str | os.PathLike, header: dict[str, Any]) -> BasePlan:
  """Returns the plan in a ledger's first line; raises as `parse` does."""
  if header.get('kind') == 'plan' and header.get('format') == 1:
    raise ValueError(
      f'The ledger {os.fspath(path)} is of version 0.1, which did not keep '
      'what a round released. Start a new one, whose epsilon adds to that of '
      'this ledger.'
    )
  if header.get('kind') != 'plan' or header.get('format') not in (
    FORMAT,
    _OLD_FORMAT,
  ):
    raise ledger_file.DamagedLedgerError(
      f'Line 1 of {os.fspath(path)} is damaged: it is not the plan of a ledger.'
    )
  try:
    return plan_json.plan_from_json(header['plan'])
  except gone.GoneError as error:
    raise ValueError(
      f'The ledger {os.fspath(path)} cannot be read: {error}'
    ) from error
  except (KeyError, TypeError, ValueError) as error:
    raise ledger_file.DamagedLedgerError(
      f'Line 1 of {os.fspath(path)} is damaged: {error}'
    ) from error
