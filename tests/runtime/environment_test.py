"""Tests of the text that tells one environment from another."""

import re

import pytest

from tff_clipping import runtime
from tff_clipping.runtime import environment


def test_the_environment_is_the_same_until_something_changes():
  assert environment.describe() == environment.describe()
  assert '\n' not in environment.describe()


@pytest.mark.parametrize(
  ('name', 'is_other'),
  [
    ('TF_ENABLE_ONEDNN_OPTS', True),
    ('XLA_FLAGS', True),
    ('ONEDNN_MAX_CPU_ISA', True),
    # What is written to the log decides about no bits.
    ('TF_CPP_MIN_LOG_LEVEL', False),
    ('HOME', False),
  ],
)
def test_the_settings_of_tensorflow_are_a_part_of_it(
  monkeypatch, name, is_other
):
  before = environment.describe()
  monkeypatch.setenv(name, 'secret')
  assert (environment.describe() != before) == is_other
  assert 'secret' not in environment.describe()


@pytest.mark.parametrize(
  ('parameters', 'is_other'),
  [
    ({'num_shards': 2}, True),
    ({'threads_per_client': 2}, True),
    # Clients are added up in their order, whatever the threads do.
    ({'num_threads': 3}, False),
  ],
)
def test_what_decides_about_bits_in_a_context_is_a_part_of_it(
  parameters, is_other
):
  before = environment.describe()
  runtime.set_default_context(**parameters)
  assert (environment.describe() != before) == is_other


def test_versions_and_processor_are_a_part_of_it(monkeypatch):
  text = environment.describe()
  for each in (*environment.versions().values(), environment.processor()):
    assert each in text
  monkeypatch.setattr(environment.os, 'sched_getaffinity', lambda _: {0, 1, 2})
  assert 'CPUs 3,' in environment.describe()


def test_workers_are_named_where_they_are_of_other_processors():
  here = environment.processor()
  assert environment.describe_workers([here, here]) == ''
  assert environment.describe_workers(['other']) == ', clients on other'
  # Nobody knows which client comes to which, so no round is the same again.
  texts = [environment.describe_workers([here, 'other']) for _ in range(2)]
  assert texts[0] != texts[1]
  assert all(re.match(', clients on 2 kinds of proc', text) for text in texts)
