"""What several runs on the same clients have spent together."""

import dataclasses
import json
import pathlib
from collections.abc import Sequence

from tff_clipping.privacy.ledger import ledger_contents
from tff_clipping.privacy.plans import together, words

# Of these, nothing is charged less because cohorts are secret.
_WITHOUT_SECRET_COHORTS = ('none', 'min_separation')


def compute_spending(
  ledgers: Sequence[ledger_contents.LedgerContents],
  *,
  target_delta: float | None = None,
) -> together.Spending:
  """Returns what runs have spent together, by one accountant.

  A client that is in the population of each run is protected so much against
  who sees what all of them have released. It is more than any of them alone,
  and less than the sum of their epsilons, which would hold for the sum of their
  deltas. Which run came first, and which models a later one began with, does
  not matter: the composition is adaptive. Whether there is a later run, its
  noise and its rounds must have been settled before the first: where what one
  released decides on them, what holds is the budget that was set for all.

  The accountant is that of the runs if they have the same. Else it is 'rdp' if
  one of them is charged by it, which holds for noise in integers too.

  Args:
    ledgers: What the runs have released, at least one of them.
    target_delta: The delta of the answer, in (0, 1); that of the plans if not
      given, which they must then have in common.

  Raises:
    TypeError: If `target_delta` is no number.
    ValueError: If there are none, they are of several relations or deltas, one
      of them is there twice, two of them drew secret cohorts by one seed, one
      of 'random_allocation' is beside one that is charged by 'rdp', or nothing
      is accounted for so little noise.
  """
  if not ledgers:
    raise ValueError('`ledgers` must be at least one, found none.')
  _check_different(ledgers)
  return together.compose_together(
    [(each.plan, each.num_releases) for each in ledgers], target_delta
  )


def describe_spending(
  ledgers: Sequence[ledger_contents.LedgerContents], spent: together.Spending
) -> str:
  """Returns what several runs promise together, and where it holds.

  Args:
    ledgers: What the runs have released.
    spent: What `compute_spending` has made of them.
  """
  guarantee = words.state_guarantee(
    spent.epsilon, spent.target_delta, spent.relation
  )
  text = (
    f'Together, the {spent.num_releases} releases of {len(ledgers)} '
    f'run{"s" if len(ledgers) > 1 else ""} '
    f'satisfy client-level {guarantee}, by '
    f'{words.name_accountant(spent.accountant)}, for each client that is '
    'in the populations of all of them. That holds where it was settled '
    'before the first of them which runs there would be, with which noise '
    'and how many releases.'
  )
  assumed = find_assumed_independent(ledgers)
  if assumed:
    text += (
      ' It also needs that cohorts were drawn independently, which nothing '
      f'tells of those of {", ".join(map(str, assumed))}: no digest of their '
      'seed is in the ledger.'
    )
  caveats = [caveat for ledger in ledgers for caveat in ledger.caveats]
  if caveats:
    stated = words.state_caveats(list(dict.fromkeys(caveats)))
    text = f'{stated} Without that: {text}'
  return text


def describe_ledgers(
  paths: Sequence[pathlib.Path], *, as_planned: bool = False
) -> str:
  """Returns what the runs with some ledgers have spent together.

  The runs that gave them their clipping norm count too; see `find_sources`.

  Args:
    paths: The ledgers.
    as_planned: Whether all rounds of their plans count, also those that are not
      run yet; not of the runs that gave the clipping norm, which have ended.

  Returns:
    A paragraph; nothing for less than two runs, and where none has a guarantee.
  """
  found: dict[pathlib.Path, bool] = {}
  for path in paths:
    for source in find_sources(path):
      found.setdefault(source.resolve(), False)
    found[path.resolve()] = as_planned
  if len(found) < 2:
    return ''
  try:
    ledgers = [
      _count_planned(ledger_contents.read_ledger(path), is_planned)
      for path, is_planned in found.items()
    ]
    if all(ledger.caveats for ledger in ledgers):
      return ''
    return describe_spending(ledgers, compute_spending(ledgers))
  except (OSError, ValueError) as e:
    return f'What the private runs cost together is not known: {e}'


def find_sources(path: pathlib.Path) -> tuple[pathlib.Path, ...]:
  """Returns the ledgers of private runs whose releases gave a run its norm.

  As config.json beside the ledger says, which `tasks.train` writes. What these
  have spent is spent too.

  Args:
    path: The ledger of the run.

  Returns:
    The first run first; nothing for a run whose clipping norm comes from none.
  """
  found: list[pathlib.Path] = []
  while path not in found[:-1]:
    try:
      text = (path.parent / 'config.json').read_text(encoding='utf-8')
      path = pathlib.Path(json.loads(text)['clipping_norm_source']['ledger'])
    except (OSError, ValueError, LookupError, TypeError):
      break
    found.append(path)
  return tuple(reversed(found))


def _count_planned(
  ledger: ledger_contents.LedgerContents, is_planned: bool
) -> ledger_contents.LedgerContents:
  """Returns a ledger, with the releases that its plan has left if asked to."""
  left = ledger.plan.num_rounds - ledger.num_releases if is_planned else 0
  return dataclasses.replace(
    ledger, releases=(*ledger.releases, *[ledger_contents.UNKNOWN] * left)
  )


def find_assumed_independent(
  ledgers: Sequence[ledger_contents.LedgerContents],
) -> tuple[pathlib.Path, ...]:
  """Returns the ledgers that do not show that their cohorts are their own.

  Where several ledgers have secret cohorts, it is those of them that have no
  digest of their seed. What they have spent together needs cohorts that are
  independent of each other.

  Args:
    ledgers: What the runs have released.
  """
  secret = [
    each
    for each in ledgers
    if each.num_releases and each.plan.sampling not in _WITHOUT_SECRET_COHORTS
  ]
  if len(secret) < 2:
    return ()
  return tuple(each.path for each in secret if not each.seeds)


def _check_different(
  ledgers: Sequence[ledger_contents.LedgerContents],
) -> None:
  """Raises if a ledger is there twice, or a copy of another that went on."""
  paths = [each.path.resolve() for each in ledgers]
  run_ids = [each.run_id for each in ledgers]
  for place, (path, run_id) in enumerate(zip(paths, run_ids, strict=True)):
    if path in paths[:place]:
      raise ValueError(
        f'`ledgers` must be different ones, found {ledgers[place].path} twice.'
      )
    if run_id is not None and run_id in run_ids[:place]:
      first = ledgers[run_ids.index(run_id)].path
      raise ValueError(
        f'`ledgers` must be of different runs, found {first} and {path}, which '
        'began as one: what both released of the same cohorts costs more than '
        'releases of independent ones.'
      )
  seen: dict[str, ledger_contents.LedgerContents] = {}
  for ledger in ledgers:
    if ledger.plan.sampling in _WITHOUT_SECRET_COHORTS:
      continue
    for digest in ledger.seeds:
      if digest in seen:
        raise ValueError(
          '`ledgers` must be of runs that drew their cohorts independently, '
          f'found one seed in {seen[digest].path} and {ledger.path}: what '
          'both released of a cohort costs more than releases of independent '
          'ones.'
        )
      seen[digest] = ledger
