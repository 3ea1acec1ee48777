"""Tests of the drops with matched steps."""

import dataclasses

from analysis import evidence, frame, matched_steps
from tests.analysis import run_folders

_MNIST = ('table3_mlp_mnist_noniid', 'paper')
_CIFAR10_SMALL = ('table4_mlp_cifar10_iid', 'reduced_100_rounds')
_CIFAR10 = ('table4_mlp_cifar10_iid', 'paper_40_rounds')


def _lines(root):
  paired = run_folders.paired_runs(root)
  frames = frame.read_results(root)
  plain = frames.runs[frames.runs['variants'] == '']
  lines = evidence.paper_lines(dataclasses.replace(frames, runs=plain))
  return matched_steps.with_matched_steps(lines, paired)


def test_matched_steps_show_what_is_left_of_a_drop(tmp_path):
  for seed, left in enumerate((0.001, 0.002, 0.003)):
    run_folders.write_named_runs(
      tmp_path, _CIFAR10, {'fed_avg': 0.5, 'ce_fed_avg': 0.48}, seed
    )
    run_folders.write_named_runs(
      tmp_path,
      _CIFAR10,
      {'ce_fed_avg': 0.5 - left},
      seed,
      ('matched_steps',),
    )
  # One without a drop with the paper's steps is not among the drops.
  for seed in range(3):
    for names in ((), ('matched_steps',)):
      accuracies = {'ce_fed_avg': 0.4} | ({} if names else {'fed_avg': 0.4})
      run_folders.write_named_runs(
        tmp_path, _CIFAR10_SMALL, accuracies, seed, names
      )
  # A row without them is left out.
  run_folders.write_named_runs(
    tmp_path, _MNIST, {'fed_avg': 0.95, 'ce_fed_avg': 0.93}
  )
  lines = _lines(tmp_path)
  line, other = matched_steps.matched_table(lines).to_dict('records')
  assert (line['scale'], other['scale']) == (_CIFAR10[1], _CIFAR10_SMALL[1])
  assert line['drop, paper'] == '7.39'
  assert line['drop, η_g = 1'] == '2.00 ± 0.00'
  assert line['drop, η_g = 2'] == '0.20 ± 0.25'
  assert line['gained by η_g = 2'] == '1.80 ± 0.25'
  assert matched_steps.matched_counts(lines) == {
    'matched_tested': 2,
    'matched_left': 0,
    'matched_corrected': 0,
    'matched_above': 0,
    # 0.20 and half of the interval, 4.30 · 0.1 / √3.
    'matched_highest': '0.45',
    'matched_before': '0.00 to 2.00',
    'matched_after': '0.00 to 0.20',
  }


def test_steps_are_compared_by_the_averaged_updates(tmp_path):
  for algorithm, names, norms in (
    ('fed_avg', (), (1.0, 1.0, 1.0)),
    ('ce_fed_avg', (), (0.5, 0.125, 0.5)),
    ('ce_fed_avg', ('matched_steps',), (0.5, 0.125, 0.5)),
  ):
    run_folders.write_named_run(
      tmp_path,
      *_CIFAR10,
      algorithm,
      0.5,
      variants=names,
      updates={
        t: [('a', 9.0, 60.0, 1.0), ('mean', norm, 60.0, '')]
        for t, norm in zip((0, 2, 8), norms, strict=True)
      },
    )
  (line,) = matched_steps.matched_table(_lines(tmp_path)).to_dict('records')
  # Halvings by round, with those between filled in: 1, 2, 3, 3 - 1 / 3 and so
  # on to 1 at t = 8, and 1 in the other 31 of 40 rounds; FedAvg has none.
  halvings = [1, 2, *(3 - k / 3 for k in range(7)), *[1] * 31]
  ratio = sum(2.0**-n for n in halvings) / 40
  assert line["path over FedAvg's, η_g = 1 and 2"] == (
    f'{ratio:.2f} and {2 * ratio:.2f}'
  )
