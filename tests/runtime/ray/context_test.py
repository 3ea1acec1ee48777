"""Tests of `RayContext` on this machine, with real Ray processes.

Results are compared to the last bit with those of the in-process runtime.
"""

import contextlib
import gc
import os
import pathlib
import signal
import threading
import weakref

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tests import computations, noise_strategies, processes
from tests.learning import linear_models
from tests.runtime.ray import rounds
from tff_clipping import aggregators, learning, runtime
from tff_clipping.runtime import environment, in_process

# One Ray at a time: several are slow to start.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group('ray')]

_NUM_WORKERS = 2
# More than a client takes, on a machine that does much else.
_MAX_CLIENT_SECONDS = 15.0
_INT_CLIENTS = tff.FederatedType(np.int32, tff.CLIENTS)


@pytest.fixture(scope='module')
def context():
  with runtime.set_ray_context(
    num_workers=_NUM_WORKERS, max_client_seconds=_MAX_CLIENT_SECONDS
  ) as context:
    yield context
  assert not processes.descendants(os.getpid()), 'Something is left.'


_AGGREGATORS = {
  # The sums of floats depend on their order.
  'fed_avg': lambda: None,
  # The server keeps something, and sums are secure.
  'private': lambda: aggregators.correlated_dp_mean_factory(
    clipping_norm=0.1,
    noise_multiplier=1.1,
    clients_per_round=3,
    strategy=noise_strategies.blt(2),
    sum_factory=aggregators.secure_sum_factory(0.1),
    noise_key=(3, 4),
  ),
}


@pytest.mark.parametrize('name', _AGGREGATORS)
def test_training_has_the_bits_of_the_in_process_runtime(
  name, context, tmp_path
):
  store = linear_models.write_store(tmp_path)
  process = learning.build_fed_avg(
    linear_models.model_fn,
    local_steps=4,
    batch_size=3,
    client_learning_rate=0.3,
    client_store=store,
    seed=5,
    model_aggregator=_AGGREGATORS[name](),
  )

  def train():
    state = process.initialize()
    outputs = []
    for first in range(2):
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


def test_few_clients_and_a_clients_error_are_as_in_process(context):
  @tff.federated_computation(_INT_CLIENTS)
  def comp(values):
    return tff.federated_secure_sum(values, max_input=10)

  tff.framework.set_default_context(context)
  # None, and fewer than shards.
  assert comp([]) == 0
  assert comp([5]) == 5
  with pytest.raises(runtime.ClientError, match=r'Client 4 of 5 failed \(11\)'):
    comp([1, 2, 3, 4, 11])
  assert comp([1, 2, 3]) == 6


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


def test_a_killed_workers_shard_runs_again(context, tmp_path, caplog):
  comp = rounds.build_slow_sum(tmp_path, seconds=0.3)
  runtime.set_default_context(num_shards=_NUM_WORKERS)
  expected = comp(rounds.FLOATS)
  tff.framework.set_default_context(context)
  pid = min(
    process.pid
    for process in processes.descendants(os.getpid())
    if 'ray::Worker' in processes.command(process.pid)
  )
  with rounds.when_clients_work(tmp_path, lambda: os.kill(pid, signal.SIGKILL)):
    assert comp(rounds.FLOATS) == expected
  (warning,) = caplog.messages
  assert warning.startswith('Lost the worker on node 127.0.0.1 (')
  assert f'process {pid}): it has died' in warning
  assert comp(rounds.FLOATS) == expected


def test_a_client_that_hangs_is_run_again(context, tmp_path, caplog):
  path = tmp_path / 'client_1'
  # To open it waits for a writer, as for a network disk that is gone.
  os.mkfifo(path)

  @tff.tensorflow.computation(np.int32)
  def work(x):
    name = tf.strings.join([str(tmp_path), '/client_', tf.strings.as_string(x)])
    return tf.strings.to_number(tf.io.read_file(name), tf.int32)

  comp = computations.sum_of(work)

  def mend():
    """Brings the disk back once the worker has been given up."""
    processes.wait_for(lambda: caplog.messages)
    (tmp_path / 'file').write_text('7')
    os.replace(tmp_path / 'file', path)

  (tmp_path / 'client_0').write_text('5')
  tff.framework.set_default_context(context)
  thread = threading.Thread(target=mend)
  thread.start()
  assert comp([0, 1]) == 12
  thread.join()
  assert f'longer than {_MAX_CLIENT_SECONDS:g} seconds' in caplog.messages[0]


def test_a_worker_keeps_as_many_computations_as_a_process(context, monkeypatch):
  import ray

  from tff_clipping.runtime.ray import worker

  def serialized(factor):
    @tff.tensorflow.computation(np.int32)
    def multiply(x):
      return factor * x

    return tff.framework.serialize_computation(computations.sum_of(multiply))

  del context
  monkeypatch.setattr(in_process, 'MAX_COMPILED', 2)
  one = worker.Worker(1, environment.versions(), ())
  references = [ray.put(serialized(i)) for i in range(4)]
  compiled = [weakref.ref(one._compiled(each)) for each in references]
  gc.collect()
  assert [each() is None for each in compiled] == [True, True, False, False]


@pytest.mark.parametrize(
  ('gpus', 'need', 'room'),
  [
    (0.0, 0.0, 20),
    (2.0, 0.1, 20),
    (1.0, 0.2, 5),
    # Two on a GPU, or one: no worker has a part of each.
    (2.0, 0.4, 4),
    (2.0, 0.6, 2),
    (2.0, 1.0, 2),
    (3.0, 2.0, 1),
  ],
)
def test_workers_share_a_gpu(context, gpus, need, room, monkeypatch):
  from tff_clipping.runtime.ray import workers

  del context
  node = dict(Alive=True, Resources=dict(CPU=20.0, GPU=gpus))
  monkeypatch.setattr(workers.ray, 'nodes', lambda: [node])
  some = object.__new__(workers.Workers)
  some._needs = dict(CPU=1, GPU=need)
  assert some._room() == room


@pytest.mark.parametrize(
  ('changed', 'paths', 'message'),
  [
    ({'numpy': '0.0'}, (), 'node 7 has numpy .* [(]here 0[.]0[)]'),
    ({}, ('/no_store', '/', '/no_other'), 'node 7 lacks /no_store, /no_other'),
  ],
)
def test_a_node_that_differs_is_refused(context, changed, paths, message):
  # Imports Ray, which `set_ray_context` must be the first to do.
  from tff_clipping.runtime.ray import worker

  del context
  worker.check_node('node 7', environment.versions(), ('/',))
  with pytest.raises(RuntimeError, match=message):
    worker.check_node('node 7', environment.versions() | changed, paths)
