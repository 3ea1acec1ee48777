"""The spending of several runs on the same clients."""

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Sequence

from tff_clipping.privacy.ledger import ledger_contents
from tff_clipping.privacy.plans import together


def compute_spending(
  ledgers: Sequence[ledger_contents.LedgerContents],
  *,
  target_delta: float | None = None,
) -> together.Spending:
  """Returns the spending of runs together, by one accountant.

  See `compose_together` for its meaning, the accountant, and other errors. The
  number of runs, their noise and their rounds must have been fixed before the
  first run. If releases decide on them, only the budget of all runs holds.

  Args:
    ledgers: The ledgers of the runs, at least one.
    target_delta: As in `compose_together`.

  Raises:
    ValueError: If there is no ledger, a ledger is given twice, two runs drew
      cohorts by one seed, of which those of one are secret, or one is in the
      place of the run that gave another its clipping norm.
  """
  if not ledgers:
    raise ValueError('`ledgers` must be at least one, found none.')
  _check_different(ledgers)
  _check_sources(ledgers)
  return together.compose_together(
    [(each.plan, each.num_releases) for each in ledgers], target_delta
  )


def describe_spending(
  ledgers: Sequence[ledger_contents.LedgerContents], spent: together.Spending
) -> str:
  """Returns the promise of runs together, whose cost is `spent`, in words."""
  needs, assumed = '', find_assumed_independent(ledgers)
  if assumed:
    needs = (
      ' It also needs that cohorts were drawn independently, which nothing '
      f'tells of those of {", ".join(map(str, assumed))}: no digest of their '
      'seed is in the ledger.'
    )
  caveats = list_caveats(ledgers, spent)
  return together.describe_together(spent, len(ledgers), caveats, needs)


def list_caveats(
  ledgers: Sequence[ledger_contents.LedgerContents], spent: together.Spending
) -> list[str]:
  """Returns the caveats of runs and of their spending, each once."""
  of_runs = [each for one in ledgers for each in one.caveats]
  return [*dict.fromkeys((*of_runs, *spent.caveats))]


def as_planned(
  ledger: ledger_contents.LedgerContents,
) -> ledger_contents.LedgerContents:
  """Returns a ledger with all planned rounds charged.

  They count if releases decided when the run ended.
  """
  left = ledger.plan.num_rounds - ledger.num_releases
  releases = (*ledger.releases, *[ledger_contents.UNKNOWN] * left)
  return dataclasses.replace(ledger, releases=releases)


def describe_ledgers(
  given: Sequence[ledger_contents.LedgerContents],
) -> str:
  """Returns the spending of the runs with some ledgers, in sentences.

  The runs that gave their clipping norms count too; see `add_sources`. It is ''
  for less than two runs, and if no run has a guarantee.
  """
  try:
    ledgers = add_sources(given)
    if len(ledgers) < 2 or all(ledger.caveats for ledger in ledgers):
      return ''
    return describe_spending(ledgers, compute_spending(ledgers))
  except (OSError, ValueError) as e:
    return f'What the private runs cost together is not known: {e}'


def add_sources(
  given: Sequence[ledger_contents.LedgerContents],
) -> list[ledger_contents.LedgerContents]:
  """Returns ledgers, each after those of the runs that gave it its norm.

  Raises:
    OSError: If a ledger cannot be read.
    ValueError: If one is damaged, or a run that gave a norm is missing.
  """
  given_at = {each.path.resolve(): each for each in given}
  found: dict[pathlib.Path, ledger_contents.LedgerContents] = {}
  for ledger in given:
    chain = [ledger]
    while (source := _find_source(chain[0].path)) is not None:
      path, run_id = source
      moved = [each for each in given if run_id and each.run_id == run_id]
      # A copy that is given, with the run still there, is refused as a copy.
      before = read_source(path, run_id) or (moved[0] if moved else None)
      if before is None:
        raise _missing(chain[0], path)
      place = before.path.resolve()
      if place in [each.path.resolve() for each in chain]:
        break
      chain.insert(0, given_at.get(place, before))
    for each in chain:
      found.setdefault(each.path.resolve(), each)
  return [*found.values()]


def read_source(
  path: pathlib.Path, run_id: str | None
) -> ledger_contents.LedgerContents | None:
  """Returns the ledger of the run that gave a norm; `None` if it is missing.

  Args:
    path: Where the ledger was.
    run_id: That of its run; `None` if nothing tells, and any run there counts.
  """
  try:
    found = ledger_contents.read_ledger(path)
  except FileNotFoundError:
    return None
  return found if run_id in (None, found.run_id) else None


def find_sources(path: pathlib.Path) -> tuple[pathlib.Path, ...]:
  """Returns the ledgers of private runs whose releases gave a run its norm.

  Their spending counts too. The first run comes first. A run may be missing;
  see `add_sources`. A config.json that cannot be read is a ValueError.
  """
  found: list[pathlib.Path] = []
  while (source := _find_source(path)) is not None:
    path, _ = source
    if path in found:
      break
    found.append(path)
  return tuple(reversed(found))


def _find_source(path: pathlib.Path) -> tuple[pathlib.Path, str | None] | None:
  """Returns the ledger of the run that gave a run its norm, and its run_id.

  config.json beside a ledger, which `tasks.train` writes, has them.
  """
  config = path.parent / 'config.json'
  try:
    text = config.read_text(encoding='utf-8')
    source = json.loads(text)['clipping_norm_source']
    return pathlib.Path(source['ledger']), source.get('run_id')
  except (FileNotFoundError, LookupError, TypeError):
    return None
  except (OSError, ValueError) as error:
    raise ValueError(
      f'{config} cannot be read, which tells whether another run gave this one '
      f'its clipping norm: {error}'
    ) from error


def find_assumed_independent(
  ledgers: Sequence[ledger_contents.LedgerContents],
) -> tuple[pathlib.Path, ...]:
  """Returns the ledgers whose cohorts may not be independent of the others.

  If several ledgers have drawn cohorts, and those of one are secret, these are
  the ledgers without a seed.
  """
  drawn = [
    each
    for each in ledgers
    if each.num_releases and each.plan.sampling != 'none'
  ]
  if len(drawn) < 2 or not any(map(_has_secret_cohorts, drawn)):
    return ()
  return tuple(each.path for each in drawn if not each.seeds)


def _check_different(
  ledgers: Sequence[ledger_contents.LedgerContents],
) -> None:
  """Raises if a ledger is given twice, or two ledgers have the same cohorts."""
  for first, second in itertools.combinations(ledgers, 2):
    if first.path.resolve() == second.path.resolve():
      raise ValueError(
        f'`ledgers` must be different ones, found {second.path} twice.'
      )
    paths = f'{first.path} and {second.path}'
    if first.run_id is not None and first.run_id == second.run_id:
      raise ValueError(
        f'`ledgers` must be of different runs, found {paths}, which began as '
        'one: what both released of the same cohorts costs more than releases '
        'of independent ones.'
      )
    # Public cohorts tell of secret ones that were drawn from their seed.
    is_secret = _has_secret_cohorts(first) or _has_secret_cohorts(second)
    if is_secret and {*first.seeds} & {*second.seeds}:
      raise ValueError(
        '`ledgers` must be of runs that drew their cohorts independently, '
        f'found one seed in {paths}: what both released of a cohort costs more '
        'than releases of independent ones.'
      )


def _check_sources(
  ledgers: Sequence[ledger_contents.LedgerContents],
) -> None:
  """Raises if a run is in the place of one that gave a norm, and is missing."""
  paths = [each.path.resolve() for each in ledgers]
  given = [None, *[each.run_id for each in ledgers]]
  for ledger in ledgers:
    source = _find_source(ledger.path)
    if source is None:
      continue
    path, run_id = source
    if path.resolve() in paths and run_id not in given:
      raise _missing(ledger, path)


def _missing(
  ledger: ledger_contents.LedgerContents, path: pathlib.Path
) -> ValueError:
  return ValueError(
    f'the run that gave {ledger.path.parent} its clipping norm is missing, '
    f'found no ledger or that of another run at {path}.'
  )


def _has_secret_cohorts(ledger: ledger_contents.LedgerContents) -> bool:
  """Returns whether a run is charged less because its cohorts are secret."""
  return ledger.plan.sampling not in ('none', 'min_separation')
