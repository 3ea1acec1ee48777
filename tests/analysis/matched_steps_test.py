"""Tests of the drops with matched steps."""

import dataclasses

from analysis import evidence, frame, matched_steps
from tests.analysis import run_folders

_MNIST = ('table3_mlp_mnist_noniid', 'paper')
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
  # A row without them is left out.
  run_folders.write_named_runs(
    tmp_path, _MNIST, {'fed_avg': 0.95, 'ce_fed_avg': 0.93}
  )
  lines = _lines(tmp_path)
  (line,) = matched_steps.matched_table(lines).to_dict('records')
  assert line['row'] == _CIFAR10[0]
  assert line['drop, paper'] == '7.39'
  assert line['drop, η_g = 1'] == '2.00 ± 0.00'
  assert line['drop, η_g = 2'] == '0.20 ± 0.25'
  assert line['gained by η_g = 2'] == '1.80 ± 0.25'
  assert matched_steps.matched_counts(lines) == {
    'matched_words': (
      'MLP on CIFAR-10, IID (paper_40_rounds), 0.20 ± 0.25 of 2.00 ± 0.00 '
      'points'
    ),
    'matched_left': 0,
    'matched_above': 0,
    'matched_none': 1,
    'matched_tested': 1,
  }


def test_steps_are_compared_by_the_averaged_updates(tmp_path):
  for algorithm, names, norms in (
    ('fed_avg', (), (1.0, 0.5)),
    ('ce_fed_avg', (), (0.5, 0.125)),
    ('ce_fed_avg', ('matched_steps',), (0.5, 0.125)),
  ):
    run_folders.write_named_run(
      tmp_path,
      *_CIFAR10,
      algorithm,
      0.5,
      variants=names,
      updates={
        t: [('a', 9.0, 60.0, 1.0), ('mean', norm, 60.0, '')]
        for t, norm in zip((0, 8), norms, strict=True)
      },
    )
  (line,) = matched_steps.matched_table(_lines(tmp_path)).to_dict('records')
  # A half and a quarter: √(1 / 8), and twice of it.
  assert line["steps over FedAvg's, η_g = 1 and 2"] == '0.35 and 0.71'
