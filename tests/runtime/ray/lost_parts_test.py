"""Tests that a part of Ray that is lost leaves no hang and nothing behind."""

import logging
import os
import pathlib
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import processes
from tff_clipping import runtime

# One Ray at a time: several are slow to start.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group('ray')]

_ROOT = pathlib.Path(__file__).parents[3]
# What the command line of each part has in it.
_PARTS = {
  'raylet': r'^[^\0]*/raylet\0',
  'gcs': r'^[^\0]*/gcs_server\0',
  'what_started_ray': r'local_head\.py\0run\0',
  'what_waits_for_it': r'local_head\.py\0\d',
}


@pytest.mark.parametrize(
  ('part', 'signum', 'said'),
  [
    ('raylet', signal.SIGSTOP, 'Error: '),
    # Which part of the program sees it first, and what is said, varies.
    ('raylet', signal.SIGKILL, ''),
    ('gcs', signal.SIGKILL, ''),
    ('what_started_ray', signal.SIGKILL, 'Ray on this machine has ended'),
    ('what_waits_for_it', signal.SIGKILL, ''),
  ],
)
def test_a_lost_part_ends_the_program_and_all_of_ray(part, signum, said):
  program = subprocess.Popen(
    # Longer than anybody waits.
    [sys.executable, '-m', 'tests.runtime.ray.rounds', '10000'],
    cwd=_ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'},
  )
  with processes.ended_at_last(program):
    for _ in range(2):
      assert program.stdout.readline() == '10.0\n'
    started = processes.descendants(program.pid)
    lines = {p: _command_line(p.pid) for p in started}
    (lost,) = [p for p in started if re.search(_PARTS[part], lines[p])]
    folders = set(re.findall(r'/tmp/ray-\w+', ''.join(lines.values())))
    assert len(folders) == 1
    os.kill(lost.pid, signum)
    _, errors = program.communicate(timeout=300)
  assert program.returncode == 1
  assert said in errors
  processes.wait_until_ended(started)
  processes.wait_for(lambda: not pathlib.Path(*folders).exists())


def test_a_client_that_hangs_is_run_again_elsewhere(tmp_path):
  path = tmp_path / 'client_1'
  # To open it waits for a writer, as for a network disk that is gone.
  os.mkfifo(path)

  class Mend(logging.Handler):
    """Brings the disk back once the worker has been given up."""

    def emit(self, record):
      warnings.append(record.getMessage())
      if not path.is_file():
        (tmp_path / 'file').write_text('7')
        os.replace(tmp_path / 'file', path)

  @tff.tensorflow.computation(np.int32)
  def work(x):
    name = tf.strings.join([str(tmp_path), '/client_', tf.strings.as_string(x)])
    return tf.strings.to_number(tf.io.read_file(name), tf.int32)

  @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
  def comp(values):
    return tff.federated_sum(tff.federated_map(work, values))

  (tmp_path / 'client_0').write_text('5')
  warnings, logger = [], logging.getLogger('tff_clipping')
  handler = Mend(logging.WARNING)
  logger.addHandler(handler)
  try:
    with runtime.set_ray_context(
      num_workers=2, max_client_seconds=3.0
    ) as context:
      assert comp([0, 1]) == 12
      assert context.last_round.num_repeated == 1
  finally:
    logger.removeHandler(handler)
  assert 'a client has worked for' in warnings[0]
  processes.wait_until_ended(processes.descendants(os.getpid()))


def _command_line(pid):
  return pathlib.Path(f'/proc/{pid}/cmdline').read_bytes().decode()
