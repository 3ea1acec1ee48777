"""Tests of what is published of runs."""

from scripts import publish_runs


def _write(path, text='x'):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text)


def test_small_files_of_finished_runs_alone_are_copied(tmp_path):
  source, target = tmp_path / 'runs', tmp_path / 'results'
  for file in ('config.json', 'metrics.csv', 'result.json', 'ledger.jsonl'):
    _write(source / 'done' / file)
  _write(source / 'done' / 'updates' / 'round_00000.csv')
  _write(source / 'done' / 'audit' / 'audit.json')
  _write(source / 'done' / 'audit' / 'release_00001.npy')
  _write(source / 'done' / 'checkpoints' / 'round_1' / 'state')
  _write(source / 'going_on' / 'config.json')
  _write(source / 'search' / 'mlp' / 'sweep.csv')
  _write(source / 'search' / 'mlp' / 'rate=1' / 'metrics.csv')
  assert publish_runs.publish(source, target) == ['done', 'search/mlp']
  assert sorted(
    str(path.relative_to(target))
    for path in target.rglob('*')
    if path.is_file()
  ) == [
    'done/audit/audit.json',
    'done/config.json',
    'done/metrics.csv',
    'done/result.json',
    'done/updates/round_00000.csv',
    'search/mlp/sweep.csv',
  ]


def test_a_run_replaces_what_was_published_of_it(tmp_path):
  _write(tmp_path / 'runs' / 'run' / 'result.json', 'new')
  _write(tmp_path / 'results' / 'run' / 'result.json', 'old')
  _write(tmp_path / 'results' / 'run' / 'updates' / 'round_00064.csv')
  publish_runs.publish(tmp_path / 'runs', tmp_path / 'results')
  files = [path.name for path in (tmp_path / 'results' / 'run').iterdir()]
  assert files == ['result.json']
  text = (tmp_path / 'results' / 'run' / 'result.json').read_text()
  assert text == 'new'
