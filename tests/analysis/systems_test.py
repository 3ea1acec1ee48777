"""Tests of the table of systems."""

from analysis import systems
from tests.analysis import run_folders

_HALF = 'mlp_mnist_half'
_ROOT = 159_010**0.5


def _read(folder):
  return systems.systems(run_folders.read_evidence(folder))


def test_systems_stand_side_by_side_by_budget(tmp_path):
  run_folders.write_three(tmp_path)
  assert _read(tmp_path).empty
  replace = {'relation': 'replace_one', 'noise_multiplier': 10.0}
  five = dict(variants=['epsilon_5'], target_epsilon=5.0)
  bits = dict(aggregation='distributed', sum_bits=16)
  # In place of those at the row's rate.
  other_rate = dict(client_learning_rate=0.02)
  other_rate['variants'] = ['adaptive', 'client_rate_0.02']
  for row, algorithm, privacy, settings in (
    (_HALF, 'local_dp_fed_avg', replace, {}),
    (_HALF, 'local_dp_fed_avg', replace, five),
    (
      _HALF,
      'dp_model_clipping_fed_avg',
      replace,
      dict(variants=['half_model_norm'], clipping_norm=9.0),
    ),
    (_HALF, 'dp_fed_avg', {}, dict(variants=['adaptive'])),
    (_HALF, 'dp_fed_avg', {}, other_rate),
    (_HALF, 'dp_fed_avg', {}, dict(variants=['distributed'], **bits)),
    (_HALF, 'dp_fed_avg', {}, dict(variants=['banded'], mechanism='banded')),
    (
      'mlp_mnist_disjoint',
      'dp_steps_fed_avg',
      replace,
      dict(clients_per_round=20),
    ),
    (
      'mlp_mnist_examples',
      'dp_fed_avg',
      {},
      dict(variants=['dp_sgd'], clients_per_round=2500),
    ),
  ):
    for seed in (0, 1):
      run_folders.write_runs(
        tmp_path,
        {algorithm: 0.5 + 0.1 * seed},
        row=row,
        scale='paper_96_rounds',
        seed=seed,
        privacy=privacy,
        **{'target_epsilon': 1.5} | settings,
      )
  run_folders.write_runs(
    tmp_path, {'fed_avg': 0.9}, row=_HALF, scale='paper_96_rounds'
  )
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
  rates = table['η_l'] == '0.02'
  assert [*table.index[rates]] == [('DP-FedAvg, adaptive c', '1.5')]
  assert table['seeds'].to_list() == ['1', *['2'] * 8]
  over_norm = [
    *[1.5 * _ROOT / 80] * 3,
    10 * _ROOT / 80,
    10 * _ROOT / 80**0.5,
    # √(Q P) steps of batches of 64, in each of which the client moves by C.
    10 * _ROOT / 64 / (32 * 20) ** 0.5,
    1.5 * _ROOT / 2500,
  ]
  assert table['noise / c'].to_list()[1:-1] == [f'{x:.1f}' for x in over_norm]
  over_signal = [x / 3**0.5 for x in over_norm]
  over_signal[3] *= 9 / 0.373  # A clipped model over a clipped update.
  assert table['noise / signal'].to_list()[:-1] == [
    *('–', '–'),
    *(f'{x:.2g}' for x in over_signal[1:]),
  ]
  assert table['bits'].to_list() == [*['32'] * 3, '16', *['32'] * 5]
