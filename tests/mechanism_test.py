"""Tests of the record of a mechanism."""

import dataclasses
import json

import pytest

from tff_clipping.mechanism import ADAPTS, Mechanism

_GAUSSIAN = dict(
  kind='gaussian',
  clipping_norm=0.5,
  noise_multiplier=1.1,
  clients_per_round=8,
  public=('clipping_norm',),
)
_SHARES = _GAUSSIAN | dict(kind='shares', min_clients=8, max_clients=8)


@pytest.mark.parametrize(
  'fields',
  [
    _GAUSSIAN,
    _GAUSSIAN | dict(clipping_norm=ADAPTS),
    _GAUSSIAN | dict(kind='correlated', strategy='00ff'),
    _SHARES,
    _SHARES | dict(kind='distributed', min_clients=0, max_clients=9),
  ],
)
def test_a_record_is_read_as_it_was_written_and_is_frozen(fields):
  record = Mechanism(**fields)
  text = record.to_json()
  assert '\n' not in text
  assert Mechanism.from_json(text) == record
  # Strings come out of TFF as bytes.
  assert Mechanism.from_json(text.encode()) == record
  with pytest.raises(dataclasses.FrozenInstanceError):
    record.noise_multiplier = 2.0


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    (dict(kind='laplace'), "`kind` must be one of 'gaussian'"),
    (dict(clipping_norm=0.0), '`clipping_norm` must be positive'),
    (dict(clipping_norm=float('nan')), '`clipping_norm` must be positive'),
    (dict(noise_multiplier=-1.0), '`noise_multiplier` must be positive'),
    (dict(clients_per_round=0), '`clients_per_round` must be positive'),
    (dict(strategy='00'), "must be None for the kind 'gaussian'"),
    (dict(max_clients=3), '`max_clients` must be None'),
    (dict(kind='correlated'), '`strategy` must be given'),
    (dict(kind='shares'), '`min_clients` must be given'),
    (
      dict(kind='shares', min_clients=9, max_clients=8),
      '`max_clients` must be at least 9',
    ),
    (
      dict(kind='shares', min_clients=7, max_clients=9),
      '`max_clients` must be `min_clients`',
    ),
  ],
)
def test_a_value_that_is_wrong_is_refused(fields, message):
  with pytest.raises(ValueError, match=message):
    Mechanism(**_GAUSSIAN | fields)


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    (dict(clipping_norm='large'), '`clipping_norm` must be'),
    (dict(public='clipping_norm'), '`public` must be a tuple'),
    (dict(kind='correlated', strategy=7), '`strategy` must be a string'),
  ],
)
def test_what_is_of_the_wrong_kind_is_refused(fields, message):
  with pytest.raises(TypeError, match=message):
    Mechanism(**_GAUSSIAN | fields)


@pytest.mark.parametrize(
  'text',
  [
    '',
    'gaussian',
    '[]',
    '{}',
    json.dumps(_GAUSSIAN | dict(epsilon=1.0)),
    json.dumps(_GAUSSIAN | dict(noise_multiplier=0.0)),
  ],
)
def test_what_is_no_record_is_refused(text):
  with pytest.raises(ValueError, match='`mechanism` must be the JSON of'):
    Mechanism.from_json(text)
