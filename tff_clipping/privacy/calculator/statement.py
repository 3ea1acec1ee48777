"""What a run promises, as a document of a page for who must be told.

From the ledger of the run, and from what stands beside it in the run's folder.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tff_clipping.privacy.accounting import rounding
from tff_clipping.privacy.audit import trade_off
from tff_clipping.privacy.ledger import ledger_contents
from tff_clipping.privacy.plans import words
from tff_clipping.privacy.plans.base_plan import BasePlan
from tff_clipping.privacy.plans.correlated_plan import CorrelatedNoisePlan

_TITLE = 'Statement on differential privacy'
_FALSE_POSITIVE_RATE = 0.01


class _Section(NamedTuple):
  """A part of the statement.

  Attributes:
    title: Its heading.
    paragraphs: Plain text.
    points: Points of a list, after the paragraphs.
    table: Rows of two cells, after the list.
  """

  title: str
  paragraphs: Sequence[str] = ()
  points: Sequence[str] = ()
  table: Sequence[tuple[str, str]] = ()


# What no epsilon here includes; docs/privacy.md says more.
_NOT_COVERED = (
  'Several clients of one person: the unit is the client.',
  'The server, which sees what clients send before noise is added, unless it '
  'is added elsewhere; and whoever can read its files.',
  "Choices that were made by looking at the clients' data: {norm}, learning "
  'rates, the model.',
  'Other runs on the same clients, and other uses of their data.',
  'What was published beside the models and what is computed from them: how '
  'long a round took, logs, exact metrics.',
  'Randomness that somebody can guess: the seed of the cohorts and the key of '
  'the noise must be secret.',
  'Whether the program did what its ledger says: a ledger is a record, and its '
  'digests find accidents, not forgery.',
)

# Files of a run, of which a digest is given; only the first is always there.
_FILES = ('ledger.jsonl', 'ledger.jsonl.seal', 'privacy.json')
_MODEL = 'model.weights.h5'


def format_statement(
  ledger: ledger_contents.LedgerContents, record: Mapping[str, Any]
) -> str:
  """Returns the statement, in Markdown.

  Args:
    ledger: What the run has spent.
    record: When, with what and by which command it is made.
  """
  plan = ledger.plan
  promised = dataclasses.replace(plan, num_rounds=plan.permitted_rounds)
  return _format(
    [
      _state_caveats(ledger),
      _describe_training(ledger),
      _state_promise(ledger, promised),
      _Section('What is not covered', points=_list_not_covered(ledger)),
      _describe_computation(promised, record),
      _list_digests(ledger),
    ],
  )


def _state_caveats(ledger: ledger_contents.LedgerContents) -> _Section:
  """Returns what takes the promise away."""
  if not ledger.caveats:
    return _Section(
      'Caveats', ['No caveat is recorded in the ledger of this run.']
    )
  return _Section(
    'Caveats',
    [
      'This run does not have the guarantee that is stated below. It would '
      'have it but for this:'
    ],
    points=ledger.caveats,
  )


def _list_not_covered(ledger: ledger_contents.LedgerContents) -> list[str]:
  """Returns what is not covered; how c adapts is paid for."""
  norm = 'the clipping norm'
  if _read_experiment(ledger).get('clipping') == 'adaptive':
    norm = 'where the clipping norm began'
  return [point.format(norm=norm) for point in _NOT_COVERED]


def _read_experiment(
  ledger: ledger_contents.LedgerContents,
) -> Mapping[str, Any]:
  """Returns the settings in the run's folder; nothing if there are none."""
  found = _read_json(ledger.path.parent / 'config.json').get('experiment')
  return found if isinstance(found, Mapping) else {}


def _describe_training(ledger: ledger_contents.LedgerContents) -> _Section:
  """Returns what was trained, as far as the run's folder says it."""
  plan = ledger.plan
  table = []
  experiment = _read_experiment(ledger)
  adapts = experiment.get('clipping') == 'adaptive'
  for name, key in (
    ('Model', 'model'),
    ('Data', 'task'),
    ('Algorithm', 'algorithm'),
    ('Clipping norm c', 'clipping_norm'),
  ):
    if experiment.get(key) is not None:
      first = 'adaptive, from ' if adapts and key == 'clipping_norm' else ''
      table.append((name, f'{first}{experiment[key]}'))
  noise_multiplier = rounding.format_down(plan.noise_multiplier, digits=6)
  size = f'{noise_multiplier} times c, standard deviation of each coordinate'
  if isinstance(plan, CorrelatedNoisePlan):
    noise = 'Noise of a draw'
  elif adapts:
    noise = 'Noise on the sum and on the bits that adapt c, together'
    # The noise on the sum alone is larger.
    size = f'a noise multiplier of {noise_multiplier}'
  else:
    noise = 'Noise on the sum'
  table += [
    ('Clients in all', str(plan.num_clients)),
    ('Clients in a round', str(plan.clients_per_round)),
    ('Rounds released', f'{ledger.num_releases} of {plan.num_rounds} planned'),
    (noise, size),
  ]
  return _Section(
    'What was trained',
    [
      'A model was trained in rounds by federated learning. In each round what '
      'the clients that took part sent was clipped to a norm of c, and its sum '
      'was released with random noise.'
    ],
    table=table,
  )


def _state_promise(
  ledger: ledger_contents.LedgerContents, promised: BasePlan
) -> _Section:
  """Returns what is promised, in words and in numbers."""
  epsilon, relation = promised.epsilon, promised.relation
  attacks = trade_off.bound_attacks(promised, _FALSE_POSITIVE_RATE)
  paragraphs = [
    words.state_promise(epsilon, promised.target_delta, relation),
    words.state_attack(
      attacks.true_positive_rate,
      attacks.false_positive_rate,
      relation,
    ),
  ]
  if ledger.num_releases < promised.num_rounds:
    paragraphs.append(
      f'This is for all {promised.num_rounds} rounds that the plan allows. The '
      f'{ledger.num_releases} rounds that were run cost epsilon '
      f'{rounding.format_up(ledger.epsilon)}; that is a promise only if '
      'it was settled before the run that there would be no more.'
    )
  return _Section(
    'What is promised',
    paragraphs,
    table=[
      ('Unit of protection', 'one client, with all of its data'),
      (
        'Neighbouring relation',
        f'{relation.value}: {words.RELATIONS[relation].neighbours}',
      ),
      ('Epsilon', rounding.format_up(epsilon)),
      ('Delta', rounding.format_up(promised.target_delta, digits=6)),
      (
        f'True-positive rate at {100 * _FALSE_POSITIVE_RATE:g} % false '
        'positives, at most',
        f'{rounding.format_up(100 * attacks.true_positive_rate, digits=3)} %',
      ),
    ],
  )


def _describe_computation(
  promised: BasePlan, record: Mapping[str, Any]
) -> _Section:
  """Returns what the figures rest on."""
  versions = ', '.join(f'{k} {v}' for k, v in record['versions'].items())
  return _Section(
    'How it was computed',
    [
      words.describe_plan(promised),
      'The true-positive rate is by privacy loss distributions, for noise that '
      'is continuous.',
    ],
    table=[
      ('Date', record['date']),
      ('Versions', versions),
      ('Command', record['command']),
    ],
  )


def _list_digests(ledger: ledger_contents.LedgerContents) -> _Section:
  """Returns what identifies the run and its files."""
  names = [ledger.path.name, *_FILES, _MODEL]
  paths = [ledger.path.parent / name for name in dict.fromkeys(names)]
  table = [
    (path.name, hashlib.sha256(path.read_bytes()).hexdigest())
    for path in paths
    if path.is_file()
  ]
  if ledger.run_id is not None:
    table.insert(0, ('Number of the run', ledger.run_id))
  return _Section(
    'Digests (SHA-256)',
    [
      'Of the files that this statement rests on, and of the final model where '
      'it is there.'
    ],
    table=table,
  )


def _read_json(path: pathlib.Path) -> Mapping[str, Any]:
  """Returns what a file holds; nothing if it is not there, or no JSON."""
  try:
    value = json.loads(path.read_text(encoding='utf-8'))
  except (OSError, ValueError):
    return {}
  return value if isinstance(value, Mapping) else {}


def _format(sections: Sequence[_Section]) -> str:
  """Returns the statement with these parts, in Markdown."""
  blocks = [f'# {_escape(_TITLE)}']
  for section in sections:
    blocks.append(f'## {_escape(section.title)}')
    blocks += map(_escape, section.paragraphs)
    if section.points:
      blocks.append('\n'.join(f'* {_escape(each)}' for each in section.points))
    if section.table:
      rows = [
        ' | '.join(('', *map(_escape, row), '')).strip()
        for row in section.table
      ]
      blocks.append('\n'.join(['| | |', '|---|---|', *rows]))
  return '\n\n'.join(blocks) + '\n'


def _escape(text: str) -> str:
  """Returns text that Markdown shows as it is, on one line."""
  text = ' '.join(text.split())
  for mark in '\\`*_[]<>|#':
    text = text.replace(mark, f'\\{mark}')
  return text
