"""Tests of `RayContext` on this machine, with real Ray processes.

Results are compared to the last bit with those of the in-process runtime.
"""

import collections
import contextlib
import logging
import os
import pathlib
import signal
import threading
import time
import types

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tests import processes
from tff_clipping import aggregators, learning, privacy, runtime
from tff_clipping.learning import steps
from tff_clipping.programs.clients import client_store
from tff_clipping.runtime import environment

# One Ray at a time: several are slow to start.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group('ray')]

_NUM_WORKERS = 2
_INT_CLIENTS = tff.FederatedType(np.int32, tff.CLIENTS)


@pytest.fixture(scope='module')
def context():
  with runtime.set_ray_context(num_workers=_NUM_WORKERS) as context:
    yield context
  assert not processes.descendants(os.getpid()), 'Something is left.'


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  rng = np.random.default_rng(1)
  examples = collections.OrderedDict(
    x=rng.normal(size=(90, 5)).astype(np.float32),
    y=rng.integers(0, 3, 90).astype(np.int32),
  )
  return client_store.write_client_store(
    tmp_path_factory.mktemp('store'), 'test', examples, _PARTITION
  )


_PARTITION = np.split(np.arange(90), [1, 3, 13, 24, 40, 60, 70])


def _model_fn():
  inputs = tf.keras.Input((5,))
  logits = tf.keras.layers.Dense(
    3, kernel_initializer=tf.keras.initializers.GlorotUniform(2)
  )(inputs)
  return tff.learning.models.from_keras_model(
    tf.keras.Model(inputs, logits),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=collections.OrderedDict(
      x=tf.TensorSpec([None, 5]), y=tf.TensorSpec([None], tf.int32)
    ),
  )


_DP = dict(
  clipping_norm=0.1,
  noise_multiplier=1.1,
  clients_per_round=7,
  noise_key=(3, 4),
)
_AGGREGATORS = {
  'fed_avg': lambda: None,
  'fed_avg_with_other_steps': lambda: None,
  'ce_fed_avg': lambda: aggregators.clipped_mean_factory(clipping_norm=0.1),
  'dp_fed_avg': lambda: aggregators.dp_mean_factory(**_DP),
  'dp_fed_avg_secure': lambda: aggregators.dp_mean_factory(
    **_DP, sum_factory=aggregators.secure_sum_factory(0.1)
  ),
  'dp_fed_avg_correlated': lambda: aggregators.correlated_dp_mean_factory(
    **_DP,
    strategy=privacy.blt_strategy(
      num_rounds=3,
      participation=privacy.Participation(min_separation=3),
      num_buffers=2,
    ),
  ),
}
_OTHER_STEP = steps.Momentum(0.5, steps.Proximal(0.1))


@pytest.mark.parametrize('name', _AGGREGATORS)
def test_training_has_the_bits_of_the_in_process_runtime(name, context, store):
  process = learning.build_fed_avg(
    _model_fn,
    local_steps=4,
    batch_size=3,
    client_learning_rate=0.3,
    local_step=_OTHER_STEP if name.endswith('steps') else steps.Sgd(),
    client_store=store,
    seed=5,
    model_aggregator=_AGGREGATORS[name](),
  )

  def train():
    state = process.initialize()
    outputs = []
    for first in range(3):
      output = process.next(state, list(store.client_ids[first:]))
      state = output.state
      outputs.append(output)
    return [np.asarray(leaf) for leaf in tree.flatten(outputs)]

  tff.framework.set_default_context(context)
  found = train()
  runtime.set_default_context(num_shards=_NUM_WORKERS)
  expected = train()
  assert len(found) == len(expected)
  for a, b in zip(found, expected, strict=True):
    assert a.dtype == b.dtype
    assert a.tobytes() == b.tobytes()


def test_client_values_of_all_kinds(context):
  @tff.tensorflow.computation(
    tff.SequenceType(np.int32), np.str_, tff.TensorType(np.float32, [2])
  )
  def work(numbers, name, vector):
    total = numbers.reduce(0, lambda a, b: a + b)
    return tf.cast(total + tf.strings.length(name), tf.float32) + vector

  @tff.federated_computation(
    *(tff.FederatedType(t, tff.CLIENTS) for t in work.type_signature.parameter)
  )
  def comp(numbers, names, vectors):
    return tff.federated_sum(tff.federated_map(work, (numbers, names, vectors)))

  tff.framework.set_default_context(context)
  result = comp(
    [tf.data.Dataset.range(4, output_type=tf.int32), [10, 20], []],
    ['a', b'bcd', ''],
    [np.array([i, 0.5], np.float32) for i in range(3)],
  )
  np.testing.assert_array_equal(result, [36 + 4 + 3, 36 + 4 + 1.5])


def test_what_has_no_map_reduce_form_runs_in_the_program(context):
  @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
  def comp(values):
    return values, tff.federated_sum(values)

  tff.framework.set_default_context(context)
  found = comp(_FLOATS)
  runtime.set_default_context()
  assert found == comp(_FLOATS)


def test_no_clients_and_fewer_than_shards(context):
  tff.framework.set_default_context(context)
  comp = _secure_sum()
  assert comp([]) == 0
  assert comp([5]) == 5


def test_a_clients_error_is_as_in_process_and_ends_no_worker(context):
  tff.framework.set_default_context(context)
  workers = context.workers
  comp = _secure_sum()
  with pytest.raises(runtime.ClientError, match=r'Client 4 of 5 failed \(11\)'):
    comp([1, 2, 3, 4, 11])
  assert comp([1, 2, 3]) == 6
  assert context.workers == workers


def test_where_the_time_went(context):
  tff.framework.set_default_context(context)
  start = time.monotonic()
  _secure_sum()([1, 2, 3])
  seconds = time.monotonic() - start
  times = context.last_round
  parts = times.broadcast, times.work, times.reduce
  assert all(part >= 0 for part in parts)
  assert sum(parts) <= seconds
  assert times.num_repeated == 0


def test_only_the_loopback_interface_is_listened_on(context):
  del context
  sockets = set()
  children = [process.pid for process in processes.descendants(os.getpid())]
  for pid in [os.getpid(), *children]:
    # One may end meanwhile, or close a file.
    with contextlib.suppress(OSError):
      for path in pathlib.Path(f'/proc/{pid}/fd').iterdir():
        with contextlib.suppress(OSError):
          sockets.add(os.readlink(path))
  found = []
  for name in ('tcp', 'tcp6'):
    for line in pathlib.Path(f'/proc/net/{name}').read_text().splitlines()[1:]:
      fields = line.split()
      if fields[3] == '0A' and f'socket:[{fields[9]}]' in sockets:
        found.append(fields[1].split(':')[0])
  # 127.0.0.1, in the two ways of the kernel.
  assert len(found) > 4
  assert set(found) <= {'0100007F', '0000000000000000FFFF00000100007F'}


@pytest.mark.parametrize('signum', [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_lost_in_a_round_changes_nothing(
  signum, context, tmp_path, caplog
):
  comp, values = _slow_sum(tmp_path, seconds=0.3), _FLOATS
  runtime.set_default_context(num_shards=_NUM_WORKERS)
  expected = comp(values)
  tff.framework.set_default_context(context)
  _wait_for_spare(context)
  node, pid = context.workers[0]
  for path in tmp_path.iterdir():
    path.unlink()
  with _when(lambda: len(list(tmp_path.iterdir())) >= 4, pid, signum):
    with caplog.at_level(logging.WARNING):
      result = comp(values)
  assert float(result) == float(expected)
  assert context.last_round.num_repeated == 1
  assert pid not in [p for _, p in context.workers]
  warnings = [
    r.getMessage() for r in caplog.records if 'Lost' in r.getMessage()
  ]
  assert len(warnings) == 1
  assert node in warnings[0]
  assert f'process {pid}' in warnings[0]
  # The next round has all its workers at once: nobody waits for a new one.
  assert len(context.workers) >= _NUM_WORKERS
  assert float(comp(values)) == float(expected)
  assert context.last_round.num_repeated == 0


def test_a_lost_spare_is_replaced(context, caplog):
  tff.framework.set_default_context(context)
  comp = _secure_sum()
  _wait_for_spare(context)
  pid = context.workers[-1][1]
  os.kill(pid, signal.SIGKILL)
  with caplog.at_level(logging.WARNING):
    _wait_for_spare(context, but=pid)
  assert comp([1, 2, 3]) == 6
  assert any('A new worker is ready' in r.getMessage() for r in caplog.records)


@pytest.mark.parametrize('is_same', [True, False])
def test_a_worker_with_other_versions_is_a_fault(context, is_same):
  # Imports Ray, which `set_ray_context` must be the first to do.
  from tff_clipping.runtime.ray import worker_pool

  del context
  versions = environment.versions()
  if not is_same:
    versions |= {'numpy': '0.0'}
  greeting = types.SimpleNamespace(versions=versions, missing_paths=())
  worker = types.SimpleNamespace(node='node 1', greeting=greeting)
  found = worker_pool._fault([worker])
  assert found.startswith('node 1 has numpy 0.0') == (not is_same)


def test_a_slow_client_is_not_taken_for_a_lost_worker(context, tmp_path):
  # Imports Ray, which `set_ray_context` must be the first to do.
  from tff_clipping.runtime.ray import worker_pool

  tff.framework.set_default_context(context)
  _wait_for_spare(context)
  workers = context.workers
  start = time.monotonic()
  _slow_sum(tmp_path, seconds=worker_pool.SILENCE_SECONDS + 3)([1.0])
  assert time.monotonic() - start > worker_pool.SILENCE_SECONDS
  assert context.last_round.num_repeated == 0
  assert context.workers == workers


_FLOATS = [
  np.float32(x) for x in np.random.default_rng(0).normal(size=16) * 1e3
]


def _secure_sum():
  @tff.federated_computation(_INT_CLIENTS)
  def comp(values):
    return tff.federated_secure_sum(values, max_input=10)

  return comp


def _slow_sum(folder: pathlib.Path, seconds: float):
  """Returns a sum whose clients take their time, and leave a file each."""

  @tff.tensorflow.computation(np.float32)
  def work(x):
    name = tf.strings.join([str(folder), '/', tf.strings.as_string(x)])
    start = tf.timestamp()
    with tf.control_dependencies([tf.io.write_file(name, '')]):
      end = tf.while_loop(
        lambda now: now < start + seconds,
        lambda now: (
          tf.timestamp() + 0 * tf.linalg.norm(tf.fill([200, 200], now))
        ),
        [start],
      )[0]
    return x + 0 * tf.cast(end - start, tf.float32)

  @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
  def comp(values):
    return tff.federated_sum(tff.federated_map(work, values))

  return comp


def _wait_for_spare(context, but=None):
  """Runs short rounds until all workers are warm, and the spare one too."""
  comp = _secure_sum()

  def is_there():
    comp([1, 2])
    pids = [pid for _, pid in context.workers]
    return len(pids) > _NUM_WORKERS and but not in pids

  processes.wait_for(is_there)


@contextlib.contextmanager
def _when(condition, pid, signum):
  """Sends a signal as soon as a condition is true, while the body runs."""
  is_over = threading.Event()

  def wait():
    while not condition():
      if is_over.wait(0.01):
        return
    os.kill(pid, signum)

  thread = threading.Thread(target=wait)
  thread.start()
  try:
    yield
  finally:
    is_over.set()
    thread.join()
