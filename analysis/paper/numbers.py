"""The single numbers in the prose of the reproduction's pages.

`<!--=numbers.NAME(ARGUMENTS)-->` in a page stands for `NAME(found, ARGUMENTS)`.
What was not run is `margins.MISSING`.
"""

import numpy as np
import pandas as pd

from analysis.paper import findings, rows
from analysis.paper.evidence import Evidence
from analysis.runs import margins

# A clipping norm that is estimated under the budget.
_PAID = 'threshold'


def runs(found: Evidence) -> str:
  """How many runs there are."""
  return str(len(found.frames.runs))


def hours(found: Evidence) -> str:
  """How long their rounds took."""
  return f'{found.frames.runs["seconds"].sum() / 3600:.1f}'


def tff(found: Evidence) -> str:
  """With which versions of TensorFlow Federated."""
  return ', '.join(sorted(set(found.frames.runs['tff_version'].dropna())))


def at_full_scale(found: Evidence) -> str:
  """How many of the paper's rows were run at its scale."""
  best = rows.best_scale(found.lines)
  return f'{best["is_paper_scale"].sum()} of our {len(best)}'


def local_step_gain(found: Evidence, variant: str, algorithm: str) -> str:
  """How far an algorithm ends higher with another local step, seed by seed.

  Args:
    found: The evidence.
    variant: The local step, as a variant of the table of experiments.
    algorithm: The algorithm, for the ε of its row if it is private.
  """
  runs = found.runs
  own = runs[(runs['variants'] == variant) & (runs['algorithm'] == algorithm)]
  return _mean(own['gain'])


def paid_threshold(found: Evidence, row: str) -> str:
  """What a clipping norm that is paid for gains beside the exact one.

  Over all samplers and seeds with which a row was run both ways.

  Args:
    found: The evidence.
    row: The row.
  """
  runs = found.runs
  own = runs[(runs['row'] == row) & (runs['algorithm'] == 'dp_fed_avg')]
  names = own['variants'].str.split(',')
  is_paid = names.map(lambda each: _PAID in each).astype(bool)
  own = own.assign(
    way=names.map(lambda each: ','.join(sorted({*each} - {_PAID, ''})))
  )
  both = own[is_paid].merge(
    own[~is_paid], on=['scale', 'seed', 'way'], suffixes=('', '_exact')
  )
  return _mean(both['final_score'] - both['final_score_exact'])


def norm_pairs(found: Evidence, statement: str, measure: str) -> str:
  """In how many pairs of rows a statement on norms holds.

  Args:
    found: The evidence.
    statement: A word in it, such as EMNIST.
    measure: `ratio` or `stddev`.
  """
  pairs = findings.norm_pairs(found.lines)
  own = pairs[pairs['statement'].str.contains(statement)].iloc[0]
  return f'{own[measure]} of {own["pairs"]}'


def compared(found: Evidence, which: str = 'all', verdict: str = '') -> str:
  """How many comparisons of two drops there are.

  Args:
    found: The evidence.
    which: `all`, those that can be `tested`, or that are `kept` by the
      correction.
    verdict: One of `findings.DECIDED`; of all without.
  """
  counted = found.counted
  is_shown = {
    'all': counted['verdict'].notna(),
    'tested': findings.is_tested(counted['verdict']),
    'kept': findings.stays_decided(counted),
  }[which]
  if verdict:
    is_shown &= counted['verdict'] == verdict
  return str(is_shown.sum())


def kept_beyond_speed(found: Evidence) -> str:
  """How many that are kept are clear, to the same side, beyond speed."""
  counted = found.counted
  kept = counted[findings.stays_decided(counted)]
  return str(
    sum(
      pair['beyond_speed'] is not None
      and margins.sign(pair['beyond_speed']) == margins.sign(pair['difference'])
      for pair in kept.to_dict('records')
    )
  )


def concentration(found: Evidence, which: str = 'matched') -> str:
  """The correlation of the spread of norms and drops, `matched` or `plain`."""
  correlations = findings.concentration(found.lines)
  return '; '.join(
    f'ρ = {found.value:.2f}, p = {found.p_value:.2g}'
    for found in correlations[which]
  )


def beyond_speed(found: Evidence, sign: str) -> str:
  """In how many rows and scales CE-FedAvg ends `above` FedAvg at equal path.

  Also `below`, or `all` of them: those with three seeds that are not near
  chance.
  """
  leads = [
    line['equal_path_lead']
    for line in rows.without_shared(found.lines).to_dict('records')
    if isinstance(line['equal_path_lead'], margins.Estimate)
    and not rows.is_near_chance(line, 'fed_avg')
  ]
  signs = [margins.sign(lead) for lead in leads]
  signs = [each for each in signs if each is not None]
  if sign == 'all':
    return str(len(signs))
  return str(signs.count({'above': 1, 'below': -1}[sign]))


def largest_cosine(found: Evidence, t: str) -> str:
  """The largest mean cosine of two updates of FedAvg at a round, rounded up.

  Of all settings, each the mean of its seeds.
  """
  largest = _cosines(found, int(t)).max()
  return margins.number(np.ceil(100 * largest) / 100, '.2f')


def settings_with_cosine(found: Evidence, t: str) -> str:
  """How many settings `largest_cosine` is of."""
  return str(len(_cosines(found, int(t))))


def cosine(found: Evidence, row: str, scale: str) -> str:
  """The mean cosine of two updates of FedAvg at t = 16."""
  lines = found.lines
  own = lines[(lines['row'] == row) & (lines['scale'] == scale)]
  return margins.number(own['cosine_at'].mean(), '.3f')


def papers_epsilon(found: Evidence) -> str:
  """What the paper's ε is for the cohorts that it draws."""
  own = found.runs[found.runs['variants'] == 'paper_sampling']
  return margins.at_most(own['privacy_actual_epsilon'].max())


def _cosines(found: Evidence, t: int) -> pd.Series:
  runs = found.runs
  own = runs[(runs['algorithm'] == 'fed_avg') & (runs['variants'] == '')]
  cosines = rows.mean_cosines(found.frames.updates, t).reindex(own.index)
  return cosines.groupby(own['series']).mean().dropna()


def _mean(values: pd.Series) -> str:
  return str(margins.estimate(values) or margins.MISSING)
