"""Runs the example of frozen layers as a user would."""

import json
import shutil

import pytest

from tests.tasks import train_command

_EXAMPLE = train_command.ROOT / 'examples' / 'frozen_layers'


@pytest.mark.slow
def test_what_is_frozen_is_not_trained(tmp_path):
  shutil.copytree(_EXAMPLE, tmp_path, dirs_exist_ok=True)
  printed = train_command.run_in(tmp_path, 'sh', '-e', 'train.sh').output
  assert printed.count('Charged: (2, 0.0001)-differential privacy') == 3
  # 32 inputs, 128 units and 4 classes: both layers, the head alone, and with
  # it the 4 rows of B.
  counts = {'whole': 33 * 128 + 129 * 4, 'head': 129 * 4}
  counts['adapter'] = 4 * 128 + counts['head']
  report = (tmp_path / 'report' / 'report.md').read_text()
  for part, count in counts.items():
    config = json.loads((tmp_path / 'runs' / part / 'config.json').read_text())
    assert config['model']['num_parameters'] == count
    assert f'd = {count:,} parameters' in report
