"""FedAvg is Algorithm 1 in NumPy, and keeps its promises at the edges."""

import functools
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import linear_models, one_client
from tff_clipping import aggregators, learning
from tff_clipping.learning import client_batches
from tff_clipping.programs.clients import client_store

_WORK = dict(local_steps=4, batch_size=3, client_learning_rate=0.1)
_SERVER_LEARNING_RATE = 0.7
_CLIPPING_NORM = 0.15
_SEED = 5
_SGD = tff.learning.optimizers.build_sgdm(_SERVER_LEARNING_RATE)


# Clients of 1 to 7 examples: fewer and more than a batch, and no multiples.
# The last one has none.
_PARTITION = [
  np.arange(0, 1),
  np.arange(1, 3),
  np.arange(3, 6),
  np.arange(6, 13),
  np.arange(0),
]


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  return client_store.write_client_store(
    tmp_path_factory.mktemp('store'),
    'test',
    linear_models.examples(),
    _PARTITION,
  )


@pytest.fixture(scope='module')
def process(store):
  """FedAvg of the clients of the store."""
  return _build(store)


@pytest.fixture(scope='module')
def measured_process(store):
  """FedAvg whose server takes the mean as it is, with measurements."""
  return _build(store, measure_updates=True, server_learning_rate=1.0)


@pytest.fixture(scope='module')
def dataset_process():
  """FedAvg of data sets."""
  return _build(None)


def _build(store, **kwargs):
  settings = dict(
    **_WORK,
    server_learning_rate=_SERVER_LEARNING_RATE,
    client_store=store,
    seed=_SEED,
  )
  settings.update(kwargs)
  return learning.build_fed_avg(linear_models.model_fn, **settings)


def _numpy_fed_avg(initial, cohorts, clipping_norm=math.inf, denominator=None):
  """The pseudocode of Algorithms FedAvg and CE-FedAvg, in NumPy."""
  x = initial.astype(float)
  models = [x]
  for t, cohort in enumerate(cohorts):
    differences = [
      one_client.descend(
        one_client.sgd,
        start=x,
        rows=_PARTITION[int(client_id)],
        **_WORK,
        seed=one_client.client_seed(_SEED, t, client_id),
      )
      for client_id in cohort
    ]
    clipped = [
      d * min(1, clipping_norm / np.linalg.norm(d)) for d in differences
    ]
    mean = np.sum(clipped, axis=0) / (denominator or len(cohort))
    x = x + _SERVER_LEARNING_RATE * mean
    models.append(x)
  return models


_COHORTS = (
  ('00000', '00002', '00003'),
  ('00001', '00002', '00003', '00000'),
  ('00003', '00001'),
)


def test_fed_avg_follows_the_pseudocode(process):
  models, _ = linear_models.run(process, _COHORTS)
  expected = _numpy_fed_avg(models[0], _COHORTS)
  np.testing.assert_allclose(models, expected, atol=1e-5)
  # And it moves: the comparison is not one of equal initial models.
  assert np.abs(models[-1] - models[0]).max() > 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
  ('aggregator', 'denominator'),
  [
    (aggregators.clipped_mean_factory(clipping_norm=_CLIPPING_NORM), None),
    # The public cohort size, and the smallest noise that there is.
    (
      aggregators.dp_mean_factory(
        clipping_norm=_CLIPPING_NORM, noise_multiplier=1e-9, clients_per_round=3
      ),
      3,
    ),
  ],
)
def test_clipped_fed_avg_follows_the_pseudocode(store, aggregator, denominator):
  process = _build(store, model_aggregator=aggregator)
  models, _ = linear_models.run(process, _COHORTS)
  expected = _numpy_fed_avg(models[0], _COHORTS, _CLIPPING_NORM, denominator)
  np.testing.assert_allclose(models, expected, atol=1e-5)
  # The clip is at work.
  unclipped = _numpy_fed_avg(models[0], _COHORTS, denominator=denominator)
  assert np.abs(unclipped[-1] - expected[-1]).max() > 0.01


def test_an_empty_cohort_changes_nothing(process):
  models, (metrics,) = linear_models.run(process, [()])
  np.testing.assert_array_equal(*models)
  assert not metrics['finalizer']['update_non_finite']


@pytest.mark.slow
def test_equal_seeds_give_equal_bits_also_with_a_server_optimizer(
  store, process
):
  first, _ = linear_models.run(process, _COHORTS)
  # Plain SGD, which takes the place of the step.
  built_anew = _build(store, server_learning_rate=None, server_optimizer=_SGD)
  second, _ = linear_models.run(built_anew, _COHORTS)
  np.testing.assert_array_equal(first, second)


def test_seeds_of_clients_differ_by_seed_round_and_client():
  seeds = [
    tuple(client_batches.client_seed(seed, tf.constant(t), tf.constant(client)))
    for seed in (0, 1, 2**40)
    for t in range(10)
    for client in ('a', 'b', 'c')
  ]
  assert len({tuple(map(int, seed)) for seed in seeds}) == 3 * 10 * 3


@pytest.mark.parametrize('num_examples', [1, 2, 7, 64, 100])
def test_every_pass_takes_every_example_once(num_examples):
  indices = client_batches.batch_indices(
    tf.constant(num_examples), 10, 16, tf.constant([1, 2])
  ).numpy()
  assert indices.shape == (10, 16)
  stream = indices.ravel()
  for start in range(0, len(stream) - num_examples + 1, num_examples):
    np.testing.assert_array_equal(
      np.sort(stream[start : start + num_examples]), np.arange(num_examples)
    )


@pytest.mark.slow
def test_update_measurements_are_norms_and_angles_in_cohort_order(
  measured_process,
):
  cohorts = [_COHORTS[0], ['00003'], ['00001', '00003', '00002']]
  # One client alone: its update is the global update.
  models, (first, alone, _) = linear_models.run(measured_process, cohorts)
  _, (_, several) = linear_models.run(measured_process, cohorts[::2])
  assert np.all(np.isnan(first['client_work']['angle_degrees']))
  step, update = np.diff(models.astype(float), axis=0)[:2]
  norm = np.linalg.norm(update)
  angle = np.degrees(np.arccos(update @ step / norm / np.linalg.norm(step)))
  measured = several['client_work']
  assert len(measured['update_norm']) == len(measured['angle_degrees']) == 3
  aggregate = alone['aggregate']
  np.testing.assert_allclose(
    [measured['update_norm'][1], aggregate['update_norm']], norm, rtol=1e-5
  )
  np.testing.assert_allclose(
    [measured['angle_degrees'][1], aggregate['angle_degrees']],
    angle,
    rtol=1e-4,
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  'build',
  [
    learning.build_fed_avg,
    functools.partial(learning.build_model_clipping_fed_avg, clipping_norm=1.0),
  ],
)
def test_updates_of_any_types_are_measured(store, build):
  model_fn = linear_models.layers_fn(
    lambda: [
      tf.keras.layers.Dense(1, dtype=dtype, kernel_initializer='ones')
      for dtype in ('mixed_float16', 'float64', 'bfloat16')
    ]
  )
  process = build(
    model_fn, client_store=store, measure_updates=True, **linear_models.WORK
  )
  _, (_, metrics) = linear_models.run(process, [_COHORTS[0]] * 2)
  measured = metrics['client_work']
  assert measured['update_norm'].dtype == np.float32
  assert (measured['update_norm'] > 0).all()
  assert np.isfinite(measured['angle_degrees']).all()
  assert metrics['aggregate']['update_norm'] > 0


@pytest.mark.slow
def test_data_sets_train_the_same_model_twice(store, dataset_process):
  datasets = [store.create_dataset(client) for client in store.client_ids]
  first, _ = linear_models.run(dataset_process, [datasets])
  second, _ = linear_models.run(dataset_process, [datasets])
  assert np.abs(first[1] - first[0]).max() > 0.01
  np.testing.assert_array_equal(first, second)


def _failing_at(place):
  """Returns a data set of which all elements from a place on cannot be read."""

  def read(i):
    last = np.int64(place)
    with tf.control_dependencies([tf.debugging.assert_less(i, last)]):
      return dict(x=tf.ones([3]), y=tf.ones([1]))

  return tf.data.Dataset.range(np.int64(place) + 3).map(read)


def test_a_data_set_that_cannot_be_read_is_an_error(dataset_process):
  state = dataset_process.initialize()
  for dataset, words in (
    (_failing_at(11), 'Condition x < y did not hold'),
    (_failing_at(2000), 'Condition x < y did not hold'),
    (_failing_at(1).take(1).repeat(), 'data set of a client never ends'),
  ):
    with pytest.raises(Exception, match=words):
      dataset_process.next(state, [dataset])


def test_a_data_set_of_many_examples_is_read_whole():
  x = np.random.default_rng(0).normal(size=[2500, 5]).astype(np.float32)
  y = np.arange(2500, dtype=np.int32)
  examples = client_batches.dataset_examples(
    tf.data.Dataset.from_tensor_slices((x, y))
  )
  np.testing.assert_array_equal(examples[0], x)
  np.testing.assert_array_equal(examples[1], y)


@pytest.mark.slow
def test_a_client_that_diverged_is_not_seen_in_a_private_model():
  process = learning.build_fed_avg(
    linear_models.model_fn,
    local_steps=1,
    batch_size=1,
    client_learning_rate=1.0,
    model_aggregator=aggregators.dp_mean_factory(
      clipping_norm=1.0, noise_multiplier=1.0, clients_per_round=2.0
    ),
  )
  for value in (np.nan, np.inf, 1e30):
    clients = [
      tf.data.Dataset.from_tensors(dict(x=tf.fill([3], x), y=tf.ones([1])))
      for x in (value, 1.0)
    ]
    output = process.next(process.initialize(), clients)
    weights = process.get_model_weights(output.state)
    assert all(np.all(np.isfinite(leaf)) for leaf in weights.trainable)
    assert output.metrics['finalizer']['update_non_finite'] == 0


def test_a_client_without_examples_sends_zeros(measured_process):
  _, (metrics,) = linear_models.run(measured_process, [('00000', '00004')])
  norms = metrics['client_work']['update_norm']
  assert norms[0] > 0
  assert norms[1] == 0


@pytest.mark.parametrize(
  ('name', 'value', 'message'),
  [
    ('local_steps', 0, '`local_steps` must be at least 1'),
    ('batch_size', True, '`batch_size` must be an integer'),
    (
      'client_learning_rate',
      math.nan,
      '`client_learning_rate` must .* found nan',
    ),
    ('server_learning_rate', 0.0, '`server_learning_rate` must be positive'),
    (
      'server_optimizer',
      _SGD,
      '`server_learning_rate` and `server_opt.* exclude',
    ),
    ('server_optimizer', 5, '`server_optimizer` must be a .*Optimizer`'),
    ('model_aggregator', 'mean', '`model_aggregator` must be an aggregation'),
    ('seed', -1, '`seed` must be at least 0'),
    ('measure_updates', 'no', "updates` must be True or False, found 'no'"),
  ],
)
def test_bad_arguments_raise_when_the_process_is_built(
  store, name, value, message
):
  with pytest.raises((TypeError, ValueError), match=message):
    _build(store, **{name: value})


def test_the_servers_rate_can_be_changed_between_rounds(measured_process):
  process = measured_process
  state = process.initialize()
  assert process.get_hparams(state) == {'finalizer': {'learning_rate': 1.0}}
  half = {'finalizer': {'learning_rate': 0.5}}
  changed = process.set_hparams(state, half)
  assert process.get_hparams(changed) == half
  before = process.get_model_weights(state).trainable[0]
  whole, halved = (
    process.get_model_weights(process.next(each, ['00000', '00003']).state)
    for each in (state, changed)
  )
  np.testing.assert_allclose(
    halved.trainable[0] - before,
    0.5 * (whole.trainable[0] - before),
    rtol=1e-4,
    atol=1e-6,
  )


@pytest.mark.parametrize(
  ('names', 'is_pair'), [(('text', 'next'), True), (('target', 'x'), False)]
)
def test_features_are_told_by_name(tmp_path, names, is_pair):
  # Of one type and shape: in the order of their names, the second is first.
  store = client_store.write_client_store(
    tmp_path, 'test', {name: np.zeros([4, 5]) for name in names}, [range(4)]
  )
  spec = tf.TensorSpec([None, 5], tf.float64)
  input_spec = (spec, spec) if is_pair else dict(x=spec, y=spec)

  def model_fn():
    inputs = tf.keras.Input((5,), dtype=tf.float64)
    return tff.learning.models.from_keras_model(
      tf.keras.Model(inputs, tf.keras.layers.Dense(5)(inputs)),
      loss=tf.keras.losses.MeanSquaredError(),
      input_spec=input_spec,
    )

  settings = linear_models.WORK
  with pytest.raises(
    ValueError, match='`client_store` must have the features .* x, y'
  ):
    learning.build_fed_avg(model_fn, client_store=store, **settings)
  x, y = names
  renamed = store.preprocess(lambda row: {'x': row[x], 'y': row[y]})
  learning.build_fed_avg(model_fn, client_store=renamed, **settings)


def _keras_model(shape=(5,), **inputs):
  features = tf.keras.Input(shape, **inputs)
  hidden = features
  if shape == (None,):
    hidden = tf.keras.layers.Embedding(5, 2)(features)
    hidden = tf.keras.layers.GlobalAveragePooling1D()(hidden)
  return tf.keras.Model(features, tf.keras.layers.Dense(3)(hidden))


def _wrapped(keras_model, spec):
  return tff.learning.models.from_keras_model(
    keras_model,
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=(spec, tf.TensorSpec([None], tf.int32)),
  )


def _of_many_shapes(spec, **inputs):
  return lambda: _wrapped(
    _keras_model((None,), dtype=tf.int32, **inputs),
    spec([None, None], tf.int32),
  )


def _functional():
  return tff.learning.models.functional_model_from_keras(
    _keras_model(),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    (tf.TensorSpec([None, 5]), tf.TensorSpec([None], tf.int64)),
  )


def _from_outside():
  keras_model = _keras_model()
  return lambda: _wrapped(keras_model, tf.TensorSpec([None, 5]))


@pytest.mark.parametrize(
  ('create', 'message'),
  [
    (_keras_model, '`model_fn` must be a function that returns'),
    (lambda: _keras_model, 'wrap a Keras model with'),
    (_functional, 'lambda: .*model_from_functional'),
    (_from_outside, '`model_fn` must make its variables'),
    (
      lambda: _of_many_shapes(tf.TensorSpec),
      "examples of a fixed shape.*pad them, or take TFF's `build_unweighted_fe",
    ),
    (
      lambda: _of_many_shapes(tf.RaggedTensorSpec, ragged=True),
      "fixed shape.*pad them, .* TFF's own processes take no ragged tensors",
    ),
  ],
)
def test_models_that_cannot_be_averaged_are_refused(create, message):
  with pytest.raises((TypeError, ValueError), match=message):
    learning.build_fed_avg(create(), **linear_models.WORK)


def test_a_store_of_other_examples_is_refused(tmp_path):
  examples = linear_models.examples()
  examples['x'] = examples['x'][:, :2]
  store = client_store.write_client_store(
    tmp_path, 'other', examples, _PARTITION
  )
  with pytest.raises(ValueError, match='`client_store` must hold'):
    _build(store)
