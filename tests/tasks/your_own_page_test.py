"""Runs docs/your_own.md as it is pasted."""

import sys

import pytest

from tests.tasks import train_command, your_own_page


def _run(folder, *command):
  ended = train_command.run_in(folder, *command)
  assert ended.errors == ''
  return ended.output


@pytest.mark.slow
def test_the_page_runs_from_the_data_to_the_report(tmp_path):
  printed = your_own_page.write_files(tmp_path)
  _run(tmp_path, sys.executable, 'make_data.py')
  output = _run(tmp_path, 'sh', '-e', 'train.sh')
  assert output.count(': Finished 40 rounds.') == 5
  assert 'releases          40 of 40 planned' in output
  # Nor of the run with an aggregator of its own.
  assert 'No guarantee as it was run: ' not in output
  assert 'FedAvg by mine.py:create_aggregator' in output
  assert 'DP-FedAvg by mine.py:create_private_aggregator' in output
  assert (tmp_path / 'report' / 'report.html').exists()
  assert _run(tmp_path, sys.executable, 'in_python.py') == printed
