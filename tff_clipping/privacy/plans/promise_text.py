"""What (epsilon, delta) promises, in words for people who do not know it."""

import math
from typing import NamedTuple

from tff_clipping.privacy.accounting import rounding, sampled_gaussian


class _Words(NamedTuple):
  """What a neighbouring relation is about.

  Attributes:
    cases: The two cases that nobody can tell apart.
    attack: What an attacker gets wrong and right, with both rates.
  """

  cases: str
  attack: str


_WORDS = {
  sampled_gaussian.Relation.ADD_OR_REMOVE_ONE: _Words(
    'whether a client takes part with all of its data, or not at all',
    'wrongly names at most {wrong} % of the clients that did not take part, '
    'names at most {right} % of those that did',
  ),
  sampled_gaussian.Relation.REPLACE_ONE: _Words(
    'whether a client takes part with all of its data, or another client in '
    'its place',
    'takes another client for this one in at most {wrong} % of the cases, '
    'recognises this one in at most {right} %',
  ),
  sampled_gaussian.Relation.ZERO_OUT: _Words(
    'whether a client takes part with all of its data, or sends zeros in all '
    'of its rounds',
    'wrongly names at most {wrong} % of the clients that sent zeros, names at '
    'most {right} % of those that did not',
  ),
}

# Above it, the factor by which a probability may grow says nothing.
_LARGEST_EPSILON = 20.0


def state_promise(
  epsilon: float,
  target_delta: float,
  relation: sampled_gaussian.Relation,
) -> str:
  """Returns what epsilon and delta promise, in a sentence.

  Args:
    epsilon: What holds for the clients that are drawn.
    target_delta: Its delta.
    relation: The neighbouring relation that it is for.
  """
  if epsilon > _LARGEST_EPSILON:
    return (
      f'In words: an epsilon of {rounding.format_up(epsilon)} promises next to '
      'nothing.'
    )
  cases = _WORDS[relation].cases
  return (
    f'In words: {cases}, the probability of any '
    'result that is published is in one case at most '
    f'{rounding.format_up(math.exp(epsilon))} times that in the other, plus '
    f'{rounding.format_up(target_delta, digits=6)}.'
  )


def state_attack(
  true_positive_rate: float,
  false_positive_rate: float,
  relation: sampled_gaussian.Relation,
) -> str:
  """Returns what the best attack gets right, in a sentence.

  Args:
    true_positive_rate: The largest that any attack has.
    false_positive_rate: At this rate.
    relation: The neighbouring relation of both.
  """
  attack = _WORDS[relation].attack.format(
    wrong=f'{100 * false_positive_rate:g}',
    right=rounding.format_up(100 * true_positive_rate, digits=3),
  )
  return (
    f'An attacker who knows everything else, and {attack} (the true-positive '
    'rate).'
  )
