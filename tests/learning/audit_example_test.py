"""Runs the example of an audit as a user would."""

import pathlib
import runpy

import pytest

_SCRIPT = pathlib.Path(__file__).parents[2] / 'examples/audit/stock_fed_avg.py'


@pytest.mark.slow
def test_script_refutes_the_broken_pipeline_alone(capsys):
  # At a confidence of 99.9 %, the private pipeline is refuted once in 1000 runs
  # at most.
  runpy.run_path(str(_SCRIPT), run_name='__main__')
  printed = capsys.readouterr().out.splitlines()
  assert printed[:3] == [
    'claimed epsilon 0.53',
    'private pipeline refuted: False',
    'pipeline without a clip refuted: True',
  ]
  bound = float(printed[3].removeprefix('its epsilon, at least '))
  assert bound > 0.53
