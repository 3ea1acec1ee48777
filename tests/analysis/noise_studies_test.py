"""Tests of the studies of noise."""

from analysis import noise_studies, verdicts
from tests.analysis import run_folders

_SCALE = 'reduced'
_NOISE = {
  'table3_mlp_mnist_noniid': ('noise_0.147', (0.9, 0.85, 0.84)),
  'table3_resnet18_mnist_noniid': ('noise_0.0881', (0.8, 0.7, 0.6)),
}


def _write(root, *, row, variants, plain, private):
  for seed in range(3):
    for algorithm, accuracy in zip(
      ('fed_avg', 'ce_fed_avg'), plain, strict=True
    ):
      run_folders.write_named_run(
        root, row, _SCALE, algorithm, accuracy, seed=seed
      )
    run_folders.write_named_run(
      root,
      row,
      _SCALE,
      'dp_fed_avg',
      private + 0.001 * seed,
      seed=seed,
      variants=variants,
      privacy=run_folders.PRIVACY,
    )


def test_models_are_compared_under_the_noise_of_the_papers_cohort(tmp_path):
  for row, (name, (*plain, private)) in _NOISE.items():
    _write(tmp_path, row=row, variants=(name,), plain=plain, private=private)
  for path in tmp_path.glob('*resnet18*/config.json'):
    path.write_text(path.read_text().replace('159010', '11000000'))
  lines = noise_studies.noise_lines(run_folders.read(tmp_path))
  assert set(lines['scale_name']) == {'reduced, the noise of P = 80'}
  (found,) = verdicts.comparisons(lines, ('size',)).to_dict('records')
  assert found['verdict'] == 'holds'
  assert found['paper'] == (0.29, 3.76)
  assert str(found['difference']).startswith('9.00')


def test_runs_with_the_noise_of_their_own_cohort_do_not_count(tmp_path):
  row, (_, (*plain, private)) = next(iter(_NOISE.items()))
  _write(tmp_path, row=row, variants=(), plain=plain, private=private)
  assert noise_studies.noise_lines(run_folders.read(tmp_path)).empty
