"""Holds the figures of docs/correlated_noise.md against the plans."""

import functools
import pathlib
import re

import pytest

from tests.privacy.paper import PAPER
from tff_clipping import privacy

_PAGE = pathlib.Path(__file__).parents[2] / 'docs' / 'correlated_noise.md'
_COLUMNS = [(100, 5.0), (100, 1.5), (1000, 5.0), (1000, 1.5)]
_SEPARATION = privacy.Participation(min_separation=24)


def _rows():
  lines = re.findall(r'^\| `.*\| [\d.]+ \|$', _PAGE.read_text(), re.MULTILINE)
  return [[cell.strip() for cell in line.split('|')[1:-1]] for line in lines]


@functools.cache
def _strategy(noise, num_rounds):
  if noise == 'identity':
    return privacy.identity_strategy(num_rounds=num_rounds)
  build = privacy.banded_strategy if noise == 'banded' else privacy.blt_strategy
  return build(num_rounds=num_rounds, participation=_SEPARATION)


def _error(sampler, noise, column):
  num_rounds, epsilon = _COLUMNS[column]
  if noise == 'independent':
    plan = privacy.PrivacyPlan.from_target_epsilon(
      **PAPER,
      num_rounds=num_rounds,
      target_epsilon=epsilon,
      sampling=sampler,
      accountant='pld',
    )
    return plan, plan.running_sum_error
  name, *sizes = re.findall(r'\w+', noise.replace('b =', ''))
  if sampler == 'grouped_poisson':
    separation = int(sizes[column])
    strategy = privacy.banded_strategy(
      num_rounds=num_rounds,
      participation=privacy.Participation(
        min_separation=separation, max_participations=1
      ),
      num_bands=separation,
    )
  else:
    sampler, separation = 'min_separation', 24
    strategy = _strategy(name.lower(), num_rounds)
    if sizes:
      size = strategy.num_bands if name == 'banded' else strategy.num_buffers
      assert size == int(sizes[0])
  plan = privacy.CorrelatedNoisePlan.from_target_epsilon(
    **PAPER,
    strategy=strategy,
    target_epsilon=epsilon,
    min_separation=separation,
    sampling=sampler,
  )
  return plan, plan.running_sum_error


def _computed_rows():
  return [row for row in _rows() if 'commit 44967cd3' not in row[1]]


def test_the_table_has_all_mechanisms():
  assert (len(_rows()), len(_computed_rows())) == (7, 6)


@pytest.mark.parametrize('row', range(6))
@pytest.mark.parametrize('column', range(4))
def test_errors_are_those_of_the_plans(row, column):
  sampler, noise, relation, *errors = _computed_rows()[row]
  sampler = re.search(r'`(\w+)`', sampler)[1]
  plan, error = _error(sampler, noise, column)
  assert f'{error:.1f}' == errors[column]
  assert plan.relation.value == relation.replace('-', '_')
