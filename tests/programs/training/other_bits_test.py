"""Tests of what is said of a round that may have other bits."""

import pytest

from tff_clipping.programs.training import other_bits
from tff_clipping.runtime import environment

_ROUND = {'3f context', 'round'}


def _place(**changes):
  """Returns an environment, as a ledger has it, with other values."""
  parts = {
    'a processor, of two words': '2.36',
    'CPUs': '2',
    'GPUs': '0',
    'settings': '00aa',
    **environment.versions(),
    'computation': '11bb',
    'state': '22cc',
  }
  assert parts.keys() >= changes.keys()
  return ', '.join(
    f'{name} {value}' for name, value in (parts | changes).items()
  )


def _explain(computed=_ROUND, there=None, data_sets_repeat=False, **changes):
  return other_bits.explain(
    there or _place(),
    _place(**changes),
    computed,
    data_sets_repeat=data_sets_repeat,
  )


def test_one_difference_is_named_with_both_values():
  assert _explain(numpy='9.9') == (
    f'numpy was {environment.versions()["numpy"]} and is 9.9'
  )
  assert _explain(CPUs='4') == 'CPUs was 2 and is 4'


def test_the_name_of_a_processor_may_have_a_comma():
  assert _explain(**{'a processor, of two words': '2.40'}) == (
    'the machine was a processor, of two words 2.36 and is '
    'a processor, of two words 2.40'
  )


@pytest.mark.parametrize(
  ('computed', 'expected'),
  [
    (set(), 'no context of `tff_clipping.runtime`'),
    ({*_ROUND, None}, 'it draws random numbers'),
    ({*_ROUND, environment.DATA_SETS}, 'its clients give data sets'),
    (_ROUND, 'the process, or the context that computes it, is another'),
  ],
)
def test_a_computation_has_its_cause(computed, expected):
  found = _explain(computed, computation='33dd')
  assert expected in found
  # Digests tell a reader nothing.
  assert '33dd' not in found
  assert len(found) < 120


def test_data_sets_are_no_cause_where_they_are_taken_to_repeat():
  found = _explain(
    {*_ROUND, environment.DATA_SETS}, data_sets_repeat=True, computation='33dd'
  )
  assert 'data sets' not in found


def test_a_gpu_is_the_cause_of_a_computation_that_does_not_repeat():
  assert _explain(there=_place(GPUs='1'), GPUs='1', computation='33dd') == (
    'a GPU computes it'
  )


def test_all_differences_are_named():
  found = _explain(computation='33dd', state='44ee', settings='55ff')
  assert len(found.split('; ')) == 3
  assert 'an environment variable' in found
  assert 'the state before it' in found


def test_a_ledger_that_does_not_say_where_is_named():
  found = other_bits.explain(None, _place(), _ROUND, data_sets_repeat=False)
  assert found == 'the ledger does not say where it was computed'
