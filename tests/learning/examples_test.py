"""The examples of models and of an audit do what they say, run as by a user."""

import pathlib
import re
import runpy

import numpy as np
import pytest

_FOLDER = pathlib.Path(__file__).parents[2] / 'examples'


def _numbers_printed_by(name, capsys):
  runpy.run_path(str(_FOLDER / name), run_name='__main__')
  return [float(n) for n in re.findall(r'\d+\.\d+', capsys.readouterr().out)]


def test_the_loss_of_padded_sequences_is_the_mean_over_their_tokens():
  example = runpy.run_path(str(_FOLDER / 'models/padded_sequences.py'))
  # Of the tokens 1, 2 and the padding 0, out of three.
  shares = [[[0.1, 0.5, 0.4], [0.5, 0.25, 0.25], [0.9, 0.05, 0.05]]]
  logits = np.log(np.array(shares, np.float32))
  loss = example['MaskedCrossEntropy']()(np.array([[1, 2, 0]]), logits)
  assert float(loss) == pytest.approx(-(np.log(0.5) + np.log(0.25)) / 2)


@pytest.mark.slow
def test_padded_sequences_are_learnt(capsys):
  loss, loss_of_guesses = _numbers_printed_by(
    'models/padded_sequences.py', capsys
  )
  assert loss < 0.5 * loss_of_guesses


@pytest.mark.slow
def test_both_outputs_of_several_inputs_are_learnt(capsys):
  # The size that was made up is twice the age.
  (growth,) = _numbers_printed_by('models/several_inputs.py', capsys)
  assert growth == pytest.approx(2, abs=0.2)


@pytest.mark.slow
def test_an_audit_refutes_the_broken_pipeline_alone(capsys):
  # At a confidence of 99.9 %, the private pipeline is refuted once in 1000 runs
  # at most.
  runpy.run_path(str(_FOLDER / 'audit/stock_fed_avg.py'), run_name='__main__')
  printed = capsys.readouterr().out.splitlines()
  assert printed[:3] == [
    'claimed epsilon 0.53',
    'private pipeline refuted: False',
    'pipeline without a clip refuted: True',
  ]
  bound = float(printed[3].removeprefix('its epsilon, at least '))
  assert bound > 0.53
