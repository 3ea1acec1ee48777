"""Tests of the table of systems."""

from analysis import systems
from tests.analysis import run_folders

_SCALE = 'paper_96_rounds'
_HALF = 'mlp_mnist_half', _SCALE
_ROOT = 159_010**0.5


def _read(folder):
  return systems.systems(run_folders.read_evidence(folder))


def test_systems_stand_side_by_side_by_budget(tmp_path):
  run_folders.write_three(tmp_path)
  assert _read(tmp_path).empty
  replace = {'relation': 'replace_one', 'noise_multiplier': 10.0}
  for place, algorithm, names, privacy in (
    (_HALF, 'local_dp_fed_avg', (), replace),
    (_HALF, 'local_dp_fed_avg', ('epsilon_5',), replace),
    (_HALF, 'dp_model_clipping_fed_avg', ('half_model_norm',), replace),
    (_HALF, 'dp_fed_avg', ('adaptive',), {}),
    (_HALF, 'dp_fed_avg', ('distributed',), {}),
    (_HALF, 'dp_fed_avg', ('banded',), {}),
    (('mlp_mnist_disjoint', _SCALE), 'dp_steps_fed_avg', (), replace),
    (('mlp_mnist_examples', _SCALE), 'dp_fed_avg', ('dp_sgd',), {}),
  ):
    for seed in (0, 1):
      run_folders.write_named_run(
        tmp_path,
        *place,
        algorithm,
        0.5 + 0.1 * seed,
        seed=seed,
        variants=names,
        privacy=privacy,
      )
  run_folders.write_named_run(tmp_path, *_HALF, 'fed_avg', 0.9)
  table = _read(tmp_path).set_index(['system', 'ε'])
  assert [*table.index] == [
    ('FedAvg', '–'),
    ('DP-FedAvg, in turns, banded noise', '1.5'),
    ('DP-FedAvg, adaptive c', '1.5'),
    ('DP-FedAvg, noise at the clients, in integers (D2P-Fed)', '1.5'),
    ('model clipping', '1.5'),
    ('local DP', '1.5'),
    ('noise in each local step', '1.5'),
    ('DP-SGD', '1.5'),
    ('local DP', '5'),
  ]
  assert table['seeds'].to_list() == ['1', *['2'] * 8]
  assert table['protects'].to_list()[-3:] == [
    'an example',
    'an example',
    'a client',
  ]
  assert table['neighbours'].to_list()[:5] == [
    '–',
    *['add-or-remove-one'] * 3,
    'replace-one',
  ]
  over_norm = [
    *[1.5 * _ROOT / 80] * 3,
    10 * _ROOT / 80,
    10 * _ROOT / 80**0.5,
    # √(Q P) steps of batches of 64, in each of which the client moves by C.
    10 * _ROOT / 64 / (32 * 20) ** 0.5,
    1.5 * _ROOT / 2500,
  ]
  assert table['noise / c'].to_list()[1:-1] == [f'{x:.1f}' for x in over_norm]
  over_signal = [x / 96**0.5 for x in over_norm]
  over_signal[3] *= 9 / 0.373  # A clipped model over a clipped update.
  assert table['noise / signal'].to_list()[:-1] == [
    *('–', '–'),
    *(f'{x:.2g}' for x in over_signal[1:]),
  ]
  assert table['bits'].to_list() == [*['32'] * 3, '16', *['32'] * 5]
