"""Tests of the text that tells one environment from another."""

import functools
import re
import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import aggregators, learning, privacy, runtime
from tff_clipping.runtime import environment

_ROUND = {'round'}
_A = _ROUND | {'a'}


def _of(run, **kwargs):
  """Returns the environment of what is run, twice."""
  texts = []
  for _ in range(2):
    with environment.recording() as computed:
      run()
    texts.append(environment.describe(computed, **kwargs))
  return texts


def _repeats(run, **kwargs):
  first, second = _of(run, **kwargs)
  return first == second


def test_it_is_one_line_that_stays_as_it_is():
  assert environment.describe(_A) == environment.describe(_A)
  assert environment.describe(_A) != environment.describe(_ROUND | {'b'})
  assert '\n' not in environment.describe(_A)


def test_what_is_not_known_to_repeat_is_never_the_same():
  for computed in (set(), {'a'}, _A | {None}, _A | {environment.DATA_SETS}):
    assert environment.describe(computed) != environment.describe(computed)


class _Computation:
  """What stands for a compiled one."""

  is_round, takes_data_sets = True, False

  def __init__(self, fingerprint):
    self.fingerprint = fingerprint


def test_a_recording_has_what_is_computed_in_its_body_and_thread():
  def record(name):
    environment.record(_Computation(name), 'context')

  with environment.recording() as outer:
    record('a')
    with environment.recording() as inner:
      record('b')
    thread = threading.Thread(target=record, args=['c'])
    thread.start()
    thread.join()
  record('d')
  assert outer == _ROUND | {'a context'}
  assert inner == _ROUND | {'b context'}


@pytest.mark.parametrize(
  ('name', 'is_other'),
  [
    ('TF_ENABLE_ONEDNN_OPTS', True),
    ('XLA_FLAGS', True),
    ('ONEDNN_MAX_CPU_ISA', True),
    ('OPENBLAS_CORETYPE', True),
    ('MKL_CBWR', True),
    ('NPY_DISABLE_CPU_FEATURES', True),
    ('OMP_DYNAMIC', True),
    ('KMP_DETERMINISTIC_REDUCTION', True),
    ('GLIBC_TUNABLES', True),
    ('LD_PRELOAD', True),
    # The bits do not depend on what is written to the log.
    ('TF_CPP_MIN_LOG_LEVEL', False),
    # Ray sets it in its workers.
    ('OMP_NUM_THREADS', False),
    ('HOME', False),
  ],
)
def test_the_settings_of_libraries_are_a_part_of_it(
  monkeypatch, name, is_other
):
  monkeypatch.delenv(name, raising=False)  # Whoever runs this may have set it.
  before = environment.describe(_A)
  monkeypatch.setenv(name, 'secret')
  assert (environment.describe(_A) != before) == is_other
  assert 'secret' not in environment.describe(_A)
  monkeypatch.setenv(name, '')
  assert environment.describe(_A) == before


def test_how_tensorflow_was_built_is_a_part_of_it(monkeypatch):
  before = environment.describe(_A)
  monkeypatch.setattr(tf.version, 'COMPILER_VERSION', 'another')
  assert environment.describe(_A) != before


@pytest.mark.parametrize(
  ('line', 'is_other'),
  [
    ('flags : fma avx512f', True),
    ('cache size : 1024 KB', True),
    # It changes from one moment to the next.
    ('cpu MHz : 2600.1', False),
  ],
)
def test_the_kind_of_processor_is_a_part_of_it(monkeypatch, line, is_other):
  def describe(lines):
    environment._processor.cache_clear()
    monkeypatch.setattr(
      environment.pathlib.Path, 'read_text', lambda self: '\n'.join(lines)
    )
    return environment.machine()

  common = ['model name : A processor', 'flags : fma']
  try:
    assert (describe([*common, line]) != describe(common)) == is_other
  finally:
    environment._processor.cache_clear()


@pytest.mark.parametrize(
  ('parameters', 'is_other'),
  [
    ({'num_shards': 2}, True),
    pytest.param({'threads_per_client': 2}, True, marks=pytest.mark.slow),
    # Clients are added up in their order, whatever the threads do.
    ({'num_threads': 3}, False),
  ],
)
def test_what_bits_depend_on_in_a_context_is_a_part_of_it(parameters, is_other):
  @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
  def total(values):
    return tff.federated_sum(values)

  before, again = _of(lambda: total([1.0, 2.0]))
  assert before == again
  runtime.set_default_context(**parameters)
  assert (before not in _of(lambda: total([1.0, 2.0]))) == is_other


def test_a_round_in_a_context_that_is_not_ours_is_not_known_to_repeat():
  @tff.tensorflow.computation(np.float32)
  def plain(x):
    return x

  # Its result alone goes through our context.
  assert not _repeats(lambda: plain(1.0))


def test_versions_and_machine_are_a_part_of_it(monkeypatch):
  text = environment.describe(_A)
  for each in (*environment.versions().values(), environment.machine()):
    assert each in text
  monkeypatch.setattr(environment.os, 'sched_getaffinity', lambda _: {0, 1, 2})
  assert 'CPUs 3,' in environment.describe(_A)


def test_gpus_are_not_known_to_repeat(monkeypatch):
  monkeypatch.setattr(environment, '_num_gpus', lambda: 1)
  assert environment.describe(_A) != environment.describe(_A)
  here = environment.of_process()
  texts = [environment.describe_workers([here]) for _ in range(2)]
  assert texts[0] != texts[1]


def test_workers_are_named_where_they_are_others():
  here = environment.of_process()
  assert environment.describe_workers([here, here]) == ''
  other = 'another processor, GPUs 0'
  assert environment.describe_workers([other]) == f', clients on {other}'
  # Nobody knows which client comes to which, so no round is the same again.
  texts = [environment.describe_workers([here, other]) for _ in range(2)]
  assert texts[0] != texts[1]
  assert all(re.match(', clients on 2 kinds of work', text) for text in texts)


def _model_fn(*layers):
  inputs = x = tf.keras.Input([2])
  for layer in layers:
    x = layer()(x)
  return tff.learning.models.from_keras_model(
    tf.keras.Model(inputs, tf.keras.layers.Dense(1)(x)),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=(tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])),
  )


@functools.cache
def _round(*layers, noise_key='drawn', rate=0.1):
  """Returns what runs a round of a model with some layers."""
  process = learning.build_fed_avg(
    lambda: _model_fn(*layers),
    local_steps=1,
    batch_size=1,
    client_learning_rate=rate,
    model_aggregator=aggregators.dp_mean_factory(
      clipping_norm=1.0,
      noise_multiplier=1.0,
      clients_per_round=1,
      noise_key=noise_key,
    ),
  )
  data = tf.data.Dataset.from_tensors((tf.ones([2]), tf.ones([1])))
  state = process.initialize()
  return lambda: process.next(state, [data])


@pytest.mark.slow
def test_a_round_of_a_model_is_told_from_one_of_another():
  texts = [
    _of(_round(*layers, rate=rate), data_sets_repeat=True)[0]
    for layers, rate in (
      ((), 0.1),
      # Another process of the same kind.
      ((), 0.1),
      ((tf.keras.layers.ReLU,), 0.1),
      ((), 0.2),
    )
  ]
  assert texts[0] == texts[1]
  assert len({*texts}) == 3


@pytest.mark.slow
def test_a_round_that_draws_random_numbers_is_not_known_to_repeat():
  assert _repeats(_round(), data_sets_repeat=True)
  for run in (
    _round(lambda: tf.keras.layers.Dropout(0.5)),
    # Fresh noise.
    _round(noise_key=None),
  ):
    assert not _repeats(run, data_sets_repeat=True)


@pytest.mark.parametrize('is_drawn', [True, False])
def test_a_generator_of_random_numbers_is_known_to_repeat_by_its_seed(is_drawn):
  @tff.tensorflow.computation
  def draw():
    generator = (
      tf.random.Generator.from_non_deterministic_state()
      if is_drawn
      else tf.random.Generator.from_seed(1)
    )
    return generator.normal([])

  @tff.federated_computation
  def run():
    return tff.federated_eval(draw, tff.SERVER)

  assert _repeats(run) != is_drawn


@pytest.mark.parametrize('num_clients', [0, 2])
def test_clients_with_data_sets_repeat_where_that_is_assumed(num_clients):
  @tff.tensorflow.computation(tff.SequenceType(np.int64))
  def first(data):
    return data.reduce(np.int64(0), lambda total, x: 2 * total + x)

  @tff.federated_computation(
    tff.FederatedType(tff.SequenceType(np.int64), tff.CLIENTS)
  )
  def run(data):
    return tff.federated_sum(tff.federated_map(first, data))

  data = [tf.data.Dataset.range(9).shuffle(9)] * num_clients
  # Whoever takes part, and whatever the data set does.
  assert not _repeats(lambda: run(data))
  assert _repeats(lambda: run(data), data_sets_repeat=True)


_FACTORIES = {
  'dp_mean': lambda **kwargs: aggregators.dp_mean_factory(
    clipping_norm=1.0, **kwargs
  ),
  'adaptive': lambda **kwargs: aggregators.adaptive_dp_mean_factory(
    initial_clipping_norm=1.0, **kwargs
  ),
  'secure': lambda **kwargs: aggregators.dp_mean_factory(
    clipping_norm=1.0,
    sum_factory=aggregators.secure_sum_factory(1.0),
    **kwargs,
  ),
  'correlated': lambda **kwargs: aggregators.correlated_dp_mean_factory(
    clipping_norm=1.0,
    strategy=privacy.TreeStrategy(num_rounds=4),
    **kwargs,
  ),
}


@pytest.mark.parametrize(
  'name',
  [
    'dp_mean',
    *(
      pytest.param(name, marks=pytest.mark.slow)
      for name in ('adaptive', 'secure', 'correlated')
    ),
  ],
)
def test_every_factory_with_a_drawn_key_is_known_to_repeat(name):
  process = _FACTORIES[name](
    noise_multiplier=0.9, clients_per_round=10, noise_key='drawn'
  ).create(tff.TensorType(np.float32, [3]))
  state = process.initialize()
  assert _repeats(lambda: process.next(state, [np.ones(3, np.float32)]))


@pytest.mark.parametrize('is_ordered', [True, False])
def test_elements_in_any_order_are_not_known_to_repeat(is_ordered):
  options = tf.data.Options()
  options.deterministic = is_ordered

  @tff.tensorflow.computation
  def by_argument():
    data = tf.data.Dataset.range(9)
    data = data.map(lambda x: x + 1, 8, deterministic=is_ordered)
    return data.reduce(np.int64(0), lambda total, x: 2 * total + x)

  @tff.tensorflow.computation
  def by_options():
    data = tf.data.Dataset.range(9).with_options(options)
    return data.reduce(np.int64(0), lambda total, x: 2 * total + x)

  def run_of(computation):
    @tff.federated_computation
    def run():
      return tff.federated_eval(computation, tff.SERVER)

    return run

  for computation in (by_argument, by_options):
    assert _repeats(run_of(computation)) == is_ordered
