"""Tests of the in-process context."""

import collections
import signal
import subprocess
import sys
import textwrap
import threading
from typing import NamedTuple

import attrs
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import processes
from tests.computations import sum_of
from tff_clipping import aggregators, runtime
from tff_clipping.runtime import map_reduce, tensorflow_computation
from tff_clipping.runtime.in_process import split_into_shards

_INT_CLIENTS = tff.FederatedType(np.int32, tff.CLIENTS)
_FLOAT_CLIENTS = tff.FederatedType(np.float32, tff.CLIENTS)


class _Pair(NamedTuple):
  left: object
  right: object


@attrs.define
class _Attrs:
  first: object
  second: object


@tff.federated_computation(_INT_CLIENTS)
def _sum(values):
  return tff.federated_sum(values)


@tff.federated_computation(_FLOAT_CLIENTS)
def _float_sum(values):
  return tff.federated_sum(values)


@tff.tensorflow.computation(np.int32)
def _add_one(x):
  return x + 1


@tff.federated_computation
def _no_clients():
  return tff.federated_sum(tff.federated_value(1, tff.CLIENTS))


@tff.federated_computation(tff.FederatedType(np.int32, tff.SERVER))
def _at_server(x):
  return tff.federated_map(_add_one, x)


@tff.federated_computation(
  _INT_CLIENTS, tff.FederatedType(np.int32, tff.SERVER), _FLOAT_CLIENTS
)
def _in_any_order(ints, offset, floats):
  return collections.OrderedDict(
    ints=tff.federated_sum(ints),
    offset=offset,
    floats=tff.federated_sum(floats),
  )


@tff.federated_computation(_INT_CLIENTS)
def _secure_sums(values):
  return (
    tff.federated_secure_sum(values, max_input=2**20),
    tff.federated_secure_sum_bitwidth(values, bitwidth=21),
    tff.backends.mapreduce.federated_secure_modular_sum(values, 1000),
  )


@tff.tensorflow.computation(
  tff.to_type(collections.OrderedDict(name=np.str_, size=np.int32))
)
def _length(value):
  return tf.strings.length(value['name']) + value['size']


_BATCHES = tff.SequenceType(tff.TensorType(np.int32, [None]))


@tff.tensorflow.computation(_BATCHES)
def _total(dataset):
  return dataset.reduce(0, lambda s, batch: s + tf.reduce_sum(batch))


def _data_set_of(size):
  return tf.data.Dataset.range(size, output_type=tf.int32)


@tff.tensorflow.computation(np.int64)
def _count_to(x):
  return tf.data.Dataset.range(x).map(lambda i: {'b': i, 'a': 2 * i})


@pytest.mark.parametrize(
  ('computation', 'arguments', 'expected'),
  [
    (_sum, ([1, 2, 3],), 6),
    (_sum, ([],), 0),
    (_no_clients, (), 0),
    (_add_one, (3,), 4),
    (_at_server, (3,), 4),
    (
      _in_any_order,
      ([1, 2], 10, [0.5, 0.25]),
      dict(ints=3, offset=10, floats=0.75),
    ),
    (_secure_sums, ([2**20, 123, 999, 0],), (1049698, 1049698, 698)),
    (
      sum_of(_length),
      ([dict(name='abc', size=1), dict(size=2, name=b'de')],),
      8,
    ),
    (sum_of(_total), ([[np.arange(3, dtype=np.int32), [4]], []],), 7),
    (sum_of(_total), ([_data_set_of(4).batch(3)],), 6),
    (_count_to, (np.int64(3),), [dict(b=i, a=2 * i) for i in range(3)]),
  ],
)
def test_rounds_and_values_of_each_placement_and_kind(
  computation, arguments, expected
):
  assert computation(*arguments) == expected


def test_what_the_server_does_alone_is_one_graph():
  @tff.tensorflow.computation
  def pair():
    return collections.OrderedDict(a=tf.constant(1), b=tf.range(3))

  @tff.federated_computation
  def alone():
    return tff.federated_eval(pair, tff.SERVER)

  context = runtime.InProcessContext()
  compiled = context.compile(alone)
  assert isinstance(compiled, tensorflow_computation.TensorFlowComputation)
  result = context.invoke(alone, None)
  assert (result['a'], list(result['b'])) == (1, [0, 1, 2])


@pytest.mark.parametrize(
  ('num_clients', 'num_shards', 'sizes'),
  [(7, 3, [2, 2, 3]), (2, 5, [1, 1]), (0, 3, [0]), (4, 1, [4])],
)
def test_clients_are_split_evenly_and_in_order(num_clients, num_shards, sizes):
  found = split_into_shards(num_clients, num_shards)
  assert [len(shard) for shard in found] == sizes
  assert [i for shard in found for i in shard] == list(range(num_clients))


def test_shards_are_added_up_one_after_the_other_whatever_the_threads():
  values = np.random.default_rng(0).normal(size=60).astype(np.float32) * 1e3
  sums = set()
  for num_shards in (1, 2, 7, 60, 100):
    expected = np.float32(0)
    for number, shard in enumerate(split_into_shards(60, num_shards)):
      part = np.float32(0)
      for value in values[shard.start : shard.stop]:
        part += value
      expected = expected + part if number else part
    for num_threads in (1, 5):
      runtime.set_default_context(
        num_threads=num_threads, num_shards=num_shards
      )
      assert float(_float_sum(list(values))) == float(expected)
    sums.add(float(expected))
  # The order matters here.
  assert len(sums) > 1


def test_an_error_names_the_client_in_work_and_in_secure_sums():
  @tff.tensorflow.computation(np.int32)
  def check(x):
    with tf.control_dependencies([tf.debugging.assert_less(x, 5)]):
      return tf.identity(x)

  @tff.federated_computation(_INT_CLIENTS)
  def comp(values):
    return tff.federated_secure_sum(
      tff.federated_map(check, values), max_input=2
    )

  runtime.set_default_context(num_shards=3)
  for values, name in (([1, 2, 7, 1], '2 of 4'), ([1, 2, 0, 3], '3 of 4')):
    with pytest.raises(
      runtime.ClientError, match=rf'Client {name} failed \({max(values)}\)'
    ):
      comp(values)
  assert comp([1, 2]) == 3


@pytest.mark.parametrize(
  'argument', ['num_shards', 'num_threads', 'threads_per_client']
)
@pytest.mark.parametrize('value', [0, 1.5, True])
def test_bad_numbers_are_refused(argument, value):
  with pytest.raises((TypeError, ValueError), match=f'`{argument}`'):
    runtime.InProcessContext(**{argument: value})


def test_results_have_the_containers_of_their_type():
  @tff.tensorflow.computation(np.float32)
  def contain(x):
    return _Pair(
      left=[x, (x, x)],
      right=collections.OrderedDict(b=_Attrs(x, x), a=x),
    )

  result = contain(1.0)
  assert isinstance(result, _Pair)
  assert isinstance(result.left, list)
  assert isinstance(result.left[1], tuple)
  assert list(result.right) == ['b', 'a']
  assert isinstance(result.right['b'], _Attrs)
  assert result.left[0].dtype == np.float32

  # And what comes out goes in again.
  @tff.tensorflow.computation(contain.type_signature.result)
  def take(value):
    return value.left[0] + value.right['b'].second

  assert take(result) == 2.0


@pytest.mark.slow
def test_the_noise_of_a_key_does_not_depend_on_the_cores(monkeypatch):
  # Many blocks, which are drawn at the same time where there are cores.
  value_type = tff.TensorType(np.float32, [500_000])
  process = aggregators.gaussian_noise_factory(1.0, noise_key=(1, 2)).create(
    value_type
  )
  found = []
  for num_cores in (1, 8):
    monkeypatch.setattr(
      map_reduce.os, 'sched_getaffinity', lambda _, n=num_cores: range(n)
    )
    runtime.set_default_context(num_threads=1)
    result = process.next(process.initialize(), []).result
    found.append(result.tobytes())
  assert len(set(found)) == 1


def test_parts_of_different_numbers_of_clients_are_refused():
  @tff.federated_computation(_INT_CLIENTS, _INT_CLIENTS)
  def comp(left, right):
    return tff.federated_sum(left), tff.federated_sum(right)

  with pytest.raises(ValueError, match='same number of clients'):
    comp([1], [1, 2])


def test_structures_as_arguments_have_the_names_of_the_type_or_none():
  @tff.tensorflow.computation(tff.to_type((np.int32, (np.int32, np.int32))))
  def weigh(value):
    return value[0] + 10 * value[1][0] + 100 * value[1][1]

  unnamed = tff.structure.Struct.unnamed
  assert weigh(unnamed(1, unnamed(2, 3))) == 321

  @tff.tensorflow.computation(tff.to_type(collections.OrderedDict(a=np.int32)))
  def take(value):
    return value['a']

  assert take(tff.structure.Struct.named(a=3)) == 3
  with pytest.raises(TypeError, match='must be of type'):
    take(tff.structure.Struct.named(b=3))


def test_threads_of_a_client_change_no_more_than_last_bits_and_end_no_later():
  @tff.tensorflow.computation(tff.TensorType(np.float32, [300, 300]))
  def multiply(matrix):
    return tf.reduce_sum(matrix @ matrix)

  comp = sum_of(multiply)
  values = list(np.random.default_rng(0).random([5, 300, 300], np.float32))
  results = []
  for threads in (1, 2):
    runtime.set_default_context(num_threads=2, threads_per_client=threads)
    results.append(comp(values))
    before = set(threading.enumerate())
    for _ in range(3):
      comp(values)
    # The threads of contexts that are gone may end meanwhile.
    assert set(threading.enumerate()) <= before
  assert results[0] == pytest.approx(results[1], rel=1e-5)


@pytest.mark.slow
def test_a_fork_computes_if_its_parent_has_not():
  program = textwrap.dedent("""
    import os
    import numpy as np
    import tensorflow_federated as tff
    from tff_clipping import runtime

    @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
    def add(values):
      return tff.federated_sum(values)

    runtime.set_default_context()
    for _ in range(2):
      child = os.fork()
      if child == 0:
        try:
          print(add([3, 4]), flush=True)
        except RuntimeError as e:
          print(e, flush=True)
        os._exit(0)
      os.waitpid(child, 0)
      print(add([1, 2]), flush=True)
  """)
  ended = processes.run_python('-c', program)
  assert ended.code == 0, ended.errors
  before, parent, after, _ = ended.output.splitlines()
  assert (before, parent) == ('7', '3')
  assert 'which this one was forked from' in after


@pytest.mark.slow
def test_ctrl_c_ends_a_round_and_the_process(tmp_path):
  code = """
    import pathlib, signal, sys
    from tests.runtime.ray import rounds
    from tff_clipping import runtime
    runtime.set_default_context(num_threads=2)
    # A shell that runs the tests in the background has it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    comp = rounds.build_slow_sum(pathlib.Path(sys.argv[1]), seconds=0.1)
    comp([1.0])
    print('ready', flush=True)
    try:
      comp([2.0] * 3000)
    except KeyboardInterrupt:
      print('interrupted', flush=True)
  """
  process = subprocess.Popen(
    [sys.executable, '-c', textwrap.dedent(code), tmp_path],
    stdout=subprocess.PIPE,
    text=True,
  )
  with processes.ended_at_last(process):
    assert process.stdout.readline() == 'ready\n'
    # In the midst of the round.
    processes.wait_for((tmp_path / '2.000000').exists, process)
    process.send_signal(signal.SIGINT)
    # All clients would take minutes.
    output, _ = process.communicate(timeout=120)
  assert output == 'interrupted\n'
  assert process.returncode == 0


_MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(
  'array',
  [
    np.asfortranarray(_MATRIX),
    np.repeat(_MATRIX, 2, axis=0)[::2],
    _MATRIX[:, ::-1][:, ::-1],
    np.frombuffer(b'\0' + _MATRIX.tobytes(), np.uint8)[1:]
    .view(np.float32)
    .reshape(3, 4),
    np.broadcast_to(_MATRIX, (1, 3, 4))[0],
  ],
  ids=['fortran', 'strided', 'reversed', 'unaligned', 'read-only'],
)
def test_memory_layout_of_an_argument_does_not_matter(array):
  matrix_type = tff.TensorType(np.float32, [3, 4])

  @tff.tensorflow.computation(matrix_type)
  def weigh(matrix):
    return matrix * tf.range(12, dtype=tf.float32)[:, tf.newaxis][:3]

  comp = sum_of(weigh)
  expected = 2 * _MATRIX * np.arange(3, dtype=np.float32)[:, np.newaxis]
  for _ in range(2):
    np.testing.assert_array_equal(comp([array, array]), expected)
