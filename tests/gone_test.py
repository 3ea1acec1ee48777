"""Tests of what earlier versions wrote and this one refuses."""

import pytest

from tff_clipping import gone, privacy


def test_what_went_is_refused_by_its_name():
  with pytest.raises(
    gone.GoneError,
    match='`threshold_rounds` 24 .a first phase that estimates the clipping '
    'norm. went in 0.3.0: commit 44967cd3 reads it, and CHANGELOG.md says what',
  ):
    gone.read({'num_rounds': 96, 'threshold_rounds': 24})


def test_a_value_that_went_is_refused_by_its_name():
  with pytest.raises(
    gone.GoneError, match="`clipping` 'smooth' .smoothed normalization. went"
  ):
    gone.read({'clipping': 'smooth', 'smoothing': 0.1})
  assert gone.read({'clipping': 'fixed', 'smoothing': None}) == {
    'clipping': 'fixed'
  }


@pytest.mark.parametrize(
  ('name', 'value', 'what'),
  [
    ('mechanism', 'noised_local_steps', 'noise in each local step'),
    ('unit', 'example', 'promises to single examples'),
    ('mechanism', 'local', 'local DP'),
    ('sampling', 'truncated_poisson', 'Poisson cohorts within bounds'),
    ('sampling', 'shuffled_epochs', 'epochs in a shuffled order'),
  ],
)
def test_a_plan_of_a_kind_that_went_is_refused_by_its_name(name, value, what):
  message = f"`{name}` '{value}' .{what}. went in 0.3.0"
  with pytest.raises(gone.GoneError, match=message):
    privacy.plan_from_json({'format': 1, 'num_clients': 100, name: value})


def test_a_file_that_had_none_of_it_is_read_without():
  kept = {'num_rounds': 96, 'sampling': 'poisson', 'update_rounds': [0, 1]}
  none = {'threshold_rounds': None, 'estimate_repeats': 0, 'unit': 'client'}
  assert gone.read({**kept, **none}) == kept
