"""The promise of a run as a document of one page.

It is made from the ledger of the run, and from the files in the run's folder.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tff_clipping.privacy.accounting import rounding
from tff_clipping.privacy.audit import trade_off
from tff_clipping.privacy.ledger import ledger_contents, spending
from tff_clipping.privacy.plans import words
from tff_clipping.privacy.plans.base_plan import BasePlan
from tff_clipping.privacy.plans.correlated_plan import CorrelatedNoisePlan

# docs/privacy.md says more of what is not covered.
_STATEMENT = """\
# Statement on differential privacy

## Caveats

{caveats}

## What was trained

A model was trained in rounds by federated learning. In each round what the \
clients that took part sent was clipped to a norm of c, and its sum was \
released with random noise.

{training}

## What is promised

{promise}

## What is not covered

* Several clients of one person: the unit is the client.
* The server, which sees what clients send before noise is added, unless it is \
added elsewhere; and whoever can read its files.
* Choices that were made by looking at the clients' data: {norm}, learning \
rates, the model.
* Other runs on the same clients, and other uses of their data.
* What was published beside the models and what is computed from them: how \
long a round took, logs, exact metrics.
* Randomness that somebody can guess: the seed of the cohorts and the key of \
the noise must be secret.
* Whether the program did what its ledger says: a ledger is a record, and its \
digests find accidents, not forgery.

## How it was computed

{computation}

The true-positive rate is by privacy loss distributions, for noise that is \
continuous.

{record}

## Digests (SHA-256)

Of the files that this statement rests on, and of the final model where it is \
there.

{digests}
"""

# The settings of a run that a statement shows.
_SETTINGS = {
  'Model': 'model',
  'Data': 'task',
  'Algorithm': 'algorithm',
  'Clipping norm c': 'clipping_norm',
}

# Files of a run whose digests a statement shows.
_FILES = (
  *('ledger.jsonl', 'ledger.jsonl.seal', 'privacy.json'),
  'model.weights.h5',
)


def format_statement(
  ledger: ledger_contents.LedgerContents, record: Mapping[str, Any]
) -> str:
  """Returns the statement on the run of a ledger, in Markdown."""
  promised = ledger.promised
  experiment = _read_experiment(ledger)
  adapts = experiment.get('clipping') == 'adaptive'
  caveats = 'No caveat is recorded in the ledger of this run.'
  reasons = dict.fromkeys((*ledger.caveats, *promised.caveats))
  if reasons:
    caveats = (
      'This run does not have the guarantee that is stated below. It would '
      'have it but for this:\n\n'
    ) + '\n'.join(f'* {_escape(each)}' for each in reasons)
  made = {
    'Date': record['date'],
    'Versions': ', '.join(f'{k} {v}' for k, v in record['versions'].items()),
    'Command': record['command'],
  }
  digests = (
    {} if ledger.run_id is None else {'Number of the run': ledger.run_id}
  )
  for name in dict.fromkeys((ledger.path.name, *_FILES)):
    path = ledger.path.parent / name
    if path.is_file():
      digests[name] = hashlib.sha256(path.read_bytes()).hexdigest()
  return _STATEMENT.format(
    caveats=caveats,
    training=_table(_describe_training(ledger, experiment, adapts=adapts)),
    promise=_state_promise(ledger, promised),
    # Its changes are paid for.
    norm='where the clipping norm began' if adapts else 'the clipping norm',
    computation=_escape(words.describe_plan(promised)),
    record=_table(made),
    digests=_table(digests),
  )


def _describe_training(
  ledger: ledger_contents.LedgerContents,
  experiment: Mapping[str, Any],
  *,
  adapts: bool,
) -> dict[str, str]:
  """Returns the settings in the run's folder, and those of the plan."""
  plan = ledger.plan
  rows = {
    name: f'{experiment[key]}'
    for name, key in _SETTINGS.items()
    if experiment.get(key) is not None
  }
  if adapts and 'Clipping norm c' in rows:
    rows['Clipping norm c'] = f'adaptive, from {rows["Clipping norm c"]}'
  noise_multiplier = rounding.format_down(plan.noise_multiplier, digits=6)
  size = f'{noise_multiplier} times c, standard deviation of each coordinate'
  noise = 'Noise on the sum'
  if isinstance(plan, CorrelatedNoisePlan):
    noise = 'Noise of a draw'
  elif adapts:
    noise = 'Noise on the sum and on the bits that adapt c, together'
    # The noise on the sum alone is larger.
    size = f'a noise multiplier of {noise_multiplier}'
  return {
    **rows,
    'Clients in all': f'{plan.num_clients}',
    'Clients in a round': f'{plan.clients_per_round}',
    'Rounds released': f'{ledger.num_releases} of {plan.num_rounds} planned',
    noise: size,
  }


def _state_promise(
  ledger: ledger_contents.LedgerContents, promised: BasePlan
) -> str:
  """Returns the promise in words and in numbers."""
  epsilon, delta = promised.epsilon, promised.target_delta
  relation = promised.relation
  wrong = trade_off.FALSE_POSITIVE_RATE
  rate = trade_off.bound_attacks(promised, wrong).true_positive_rate
  paragraphs = [
    words.state_promise(epsilon, delta, relation),
    words.state_attack(rate, wrong, relation),
  ]
  if ledger.num_releases < promised.num_rounds:
    paragraphs.append(
      f'This is for all {promised.num_rounds} rounds that the plan allows. The '
      f'{ledger.num_releases} rounds that were run cost epsilon '
      f'{rounding.format_up(ledger.epsilon)}; this is a promise only if the '
      'number of rounds was fixed before the run.'
    )
  sources = spending.find_sources(ledger.path)
  if sources:
    paragraphs.append(
      'The clipping norm comes from what other runs released, whose epsilon is '
      f'spent too and is not counted here: {", ".join(map(str, sources))}.'
    )
  neighbours = words.RELATIONS[relation].neighbours
  figures = {
    'Unit of protection': 'one client, with all of its data',
    'Neighbouring relation': f'{relation.value}: {neighbours}',
    'Epsilon': rounding.format_up(epsilon),
    'Delta': rounding.format_up(delta, digits=6),
    f'True-positive rate at {100 * wrong:g} % false positives, at most': (
      f'{rounding.format_up(100 * rate, digits=3)} %'
    ),
  }
  return '\n\n'.join([*map(_escape, paragraphs), _table(figures)])


def _read_experiment(
  ledger: ledger_contents.LedgerContents,
) -> Mapping[str, Any]:
  """Returns the settings in the run's folder; nothing if there are none."""
  path = ledger.path.parent / 'config.json'
  try:
    found = json.loads(path.read_text(encoding='utf-8'))['experiment']
  except (OSError, ValueError, LookupError, TypeError):
    return {}
  return found if isinstance(found, Mapping) else {}


def _table(rows: Mapping[str, str]) -> str:
  """Returns a table of two columns in Markdown."""
  lines = [f'| {_escape(k)} | {_escape(v)} |' for k, v in rows.items()]
  return '\n'.join(['| | |', '|---|---|', *lines])


def _escape(text: str) -> str:
  """Returns text on one line that Markdown shows unchanged."""
  text = ' '.join(text.split())
  for mark in '\\`*_[]<>|#':
    text = text.replace(mark, f'\\{mark}')
  return text
