"""Tests for tasks.data.partitions.partition_figure and tasks.draw_partition."""

import numpy as np
import pytest

from tasks.data.partitions import partition_figure
from tests.tasks import train_command


@pytest.mark.parametrize(
  'num_classes', [3, 10, pytest.param(62, marks=pytest.mark.slow)]
)
def test_figure_is_written(tmp_path, num_classes):
  counts = np.random.default_rng(0).integers(0, 9, (60, num_classes))
  path = tmp_path / 'figure.png'
  partition_figure.write_class_counts_figure(counts, 'title', path)
  assert path.read_bytes().startswith(b'\x89PNG')


def _draw(*flags):
  return train_command.run('-m', 'tasks.draw_partition', *flags)


@pytest.mark.slow
def test_binary_draws_and_prints_the_summary(tmp_path):
  output = tmp_path / 'new' / 'figure.png'
  done = _draw('--num_clients=100', f'--output={output}')
  assert done.code == 0, done.errors
  assert done.output == (
    'embedded_digits, label skew with 2 major classes a client: 100 clients, '
    f'40 examples each; 4000 of 4000 examples used, each once: {output}\n'
  )
  assert output.exists()


@pytest.mark.parametrize(
  ('flag', 'message'),
  [
    ('--num_clients=0', '--num_clients must be at least 1, found 0.'),
    ('--num_clients=x', 'flag --num_clients=x: '),
    ('--partition=foo', '--partition must be one of iid, '),
  ],
)
def test_wrong_flag_is_one_line_and_exit_code_2(tmp_path, flag, message):
  done = _draw('--num_clients=10', flag, f'--output={tmp_path}/figure.png')
  assert done.code == 2
  assert done.errors.startswith(f'Error: {message}')
  assert done.errors.count('\n') == 1
