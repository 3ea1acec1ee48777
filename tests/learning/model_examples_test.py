"""Runs the examples of models as a user would."""

import pathlib
import re
import runpy

import numpy as np
import pytest

_FOLDER = pathlib.Path(__file__).parents[2] / 'examples' / 'models'


def _numbers_printed_by(name, capsys):
  runpy.run_path(str(_FOLDER / name), run_name='__main__')
  return [float(n) for n in re.findall(r'\d+\.\d+', capsys.readouterr().out)]


def test_the_loss_of_padded_sequences_is_the_mean_over_their_tokens():
  example = runpy.run_path(str(_FOLDER / 'padded_sequences.py'))
  # Of the tokens 1, 2 and the padding 0, out of three.
  shares = [[[0.1, 0.5, 0.4], [0.5, 0.25, 0.25], [0.9, 0.05, 0.05]]]
  logits = np.log(np.array(shares, np.float32))
  loss = example['MaskedCrossEntropy']()(np.array([[1, 2, 0]]), logits)
  assert float(loss) == pytest.approx(-(np.log(0.5) + np.log(0.25)) / 2)


@pytest.mark.slow
def test_padded_sequences_are_learnt(capsys):
  loss, loss_of_guesses = _numbers_printed_by('padded_sequences.py', capsys)
  assert loss < 0.5 * loss_of_guesses


@pytest.mark.slow
def test_both_outputs_of_several_inputs_are_learnt(capsys):
  # The size that was made up is twice the age.
  (growth,) = _numbers_printed_by('several_inputs.py', capsys)
  assert growth == pytest.approx(2, abs=0.2)
