"""Tests of the count of TFF's own tests that fail in our context."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).parents[2]
_TESTS = """
import unittest
import tensorflow_federated as tff
from tensorflow_federated.python.aggregators import shared_by_tests


class Test(unittest.TestCase):

  def context(self):
    return type(tff.framework.get_context_stack().current).__name__

  def test_passes(self):
    self.assertEqual(shared_by_tests.NUMBER, 3)

  def test_fails_here(self):
    print('A test may print.')
    self.assertNotEqual(self.context(), 'InProcessContext')

  def test_fails_everywhere(self):
    self.fail()

  def test_is_skipped(self):
    self.skipTest('')
"""


@pytest.mark.slow
def test_only_what_passes_natively_counts_as_failed(tmp_path):
  folder = tmp_path / 'tensorflow_federated' / 'python' / 'aggregators'
  folder.mkdir(parents=True)
  (folder / 'small_test.py').write_text(_TESTS)
  (folder / 'shared_by_tests.py').write_text('NUMBER = 3')
  (folder / 'broken_test.py').write_text('import nothing_of_this_name')
  with open(tmp_path / 'printed', 'w') as printed:
    subprocess.run(
      [
        sys.executable,
        '-m',
        'benchmarks.tff_tests',
        f'--checkout={tmp_path}',
        f'--output={tmp_path / "results"}',
      ],
      cwd=_ROOT,
      env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'},
      stdout=printed,
      stderr=printed,
      check=True,
      timeout=900,
    )
  lines = (tmp_path / 'results').read_text().splitlines()
  outcomes = {
    r['test'].rsplit('.', 1)[-1]: r['outcome'] for r in map(json.loads, lines)
  }
  assert outcomes == dict(
    py='failed natively too',
    test_passes='passed',
    test_fails_here='failed',
    test_fails_everywhere='failed natively too',
    test_is_skipped='skipped',
  )
  failed, counts = (tmp_path / 'printed').read_text().splitlines()[-2:]
  assert 'test_fails_here: AssertionError' in failed
  assert counts == '1 failed, 2 failed natively too, 1 passed, 1 skipped'


def test_a_folder_that_is_no_checkout_is_refused(tmp_path):
  result = subprocess.run(
    [
      sys.executable,
      '-m',
      'benchmarks.tff_tests',
      f'--checkout={tmp_path}',
      f'--output={tmp_path / "results"}',
    ],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert result.returncode == 1
  assert '`--checkout` must have files' in result.stderr + result.stdout
