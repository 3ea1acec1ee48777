"""Frozen layers stay as they are; a model that would change them is refused."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import linear_models
from tff_clipping import aggregators, learning
from tff_clipping.learning import untrained_variables
from tff_clipping.programs.clients import client_store


def _backbone(kernel='ones'):
  return tf.keras.layers.Dense(
    2, activation='tanh', kernel_initializer=kernel, trainable=False
  )


def _head():
  return tf.keras.layers.Dense(1, kernel_initializer='ones')


def _frozen_batch_norm():
  layer = tf.keras.layers.BatchNormalization()
  layer.trainable = False
  return layer


@pytest.mark.slow
def test_a_frozen_backbone_trains_as_its_outputs_do(store, tmp_path):
  kernel = np.random.default_rng(0).normal(size=[3, 2]).astype(np.float32)
  process = learning.build_fed_avg(
    linear_models.layers_fn(lambda: [_backbone(), _head()]),
    client_store=store,
    measure_updates=True,
    **linear_models.WORK,
  )
  weights = process.get_model_weights(process.initialize())
  assert [w.shape for w in weights.trainable] == [(2, 1), (1,)]
  np.testing.assert_array_equal(weights.non_trainable[0], np.ones([3, 2]))
  # It is what is broadcast that counts, and not what the model begins with.
  state = process.set_model_weights(
    process.initialize(),
    tff.learning.models.ModelWeights(
      weights.trainable, [kernel, np.zeros(2, np.float32)]
    ),
  )

  examples = linear_models.examples()
  # What the frozen layer makes of them.
  examples['x'] = np.tanh(examples['x'] @ kernel).astype(np.float32)
  of_features = client_store.write_client_store(
    tmp_path, 'features', examples, linear_models.PARTITION
  )
  head = learning.build_fed_avg(
    linear_models.layers_fn(lambda: [_head()], num_features=2),
    client_store=of_features,
    measure_updates=True,
    **linear_models.WORK,
  )
  head_state = head.initialize()
  for _ in range(2):
    output = process.next(state, list(store.client_ids))
    expected = head.next(head_state, list(of_features.client_ids))
    state, head_state = output.state, expected.state
  found = process.get_model_weights(state)
  trained = head.get_model_weights(head_state).trainable
  for a, b in zip(found.trainable, trained, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
  np.testing.assert_array_equal(found.non_trainable[0], kernel)
  # Norms are of what is trained.
  np.testing.assert_allclose(
    output.metrics['client_work']['update_norm'],
    expected.metrics['client_work']['update_norm'],
    rtol=1e-4,
  )


def test_nothing_of_the_frozen_layers_is_aggregated(store):
  process = learning.build_fed_avg(
    linear_models.layers_fn(lambda: [_backbone(), _head()]),
    client_store=store,
    model_aggregator=aggregators.dp_mean_factory(
      clipping_norm=0.1, noise_multiplier=1.0, clients_per_round=3.0
    ),
    **linear_models.WORK,
  )
  output = process.next(process.initialize(), list(store.client_ids))
  weights = process.get_model_weights(output.state)
  np.testing.assert_array_equal(weights.non_trainable[0], np.ones([3, 2]))
  assert np.abs(weights.trainable[0] - 1.0).max() > 1e-3


_WAYS_TO_COUNT = {
  'plainly': lambda count, inputs: count.assign_add(1.0),
  'in a function': lambda count, inputs: tf.function(
    lambda: count.assign_add(1.0)
  )(),
  'in a condition': lambda count, inputs: tf.cond(
    tf.reduce_sum(inputs) > 0.0,
    lambda: count.assign_add(1.0),
    lambda: tf.identity(count),
  ),
  'in a loop': lambda count, inputs: tf.while_loop(
    lambda i: i < 3,
    lambda i: tf.cast(count.assign_add(1.0), tf.int32) * 0 + i + 1,
    [0],
  ),
  'by a copy of its handle': lambda count, inputs: (
    tf.raw_ops.AssignAddVariableOp(
      resource=tf.raw_ops.Identity(input=count.handle), value=1.0
    )
  ),
}


class _Counts(tf.keras.layers.Layer):
  """Counts its calls in one of these ways, or reads its count alone."""

  def __init__(self, how):
    super().__init__()
    self._how = how

  def build(self, input_shape):
    self.count = self.add_weight(
      'count', [], initializer='zeros', trainable=False
    )

  def call(self, inputs, training=False):
    if training and self._how in _WAYS_TO_COUNT:
      _WAYS_TO_COUNT[self._how](self.count, inputs)
      return inputs
    return inputs + 0.0 * self.count


@pytest.mark.parametrize(
  'how',
  [
    'plainly',
    'in a loop',
    *(
      pytest.param(how, marks=pytest.mark.slow)
      for how in ('in a function', 'in a condition', 'by a copy of its handle')
    ),
  ],
)
def test_a_variable_that_a_step_changes_is_found(how):
  model_fn = linear_models.layers_fn(
    lambda: [_backbone(), _Counts(how), _head()]
  )
  (name,) = untrained_variables.changed_by_a_step(model_fn)
  assert 'count' in name
  with pytest.raises(ValueError, match='one whose steps change .*count'):
    learning.build_fed_avg(model_fn, **linear_models.WORK)


@pytest.mark.slow
def test_variables_that_are_read_only_are_not_found():
  model_fn = linear_models.layers_fn(
    lambda: [_backbone(), _Counts('never'), _frozen_batch_norm(), _head()]
  )
  assert not untrained_variables.changed_by_a_step(model_fn)
  learning.build_fed_avg(model_fn, **linear_models.WORK)


def test_a_frozen_table_is_only_read():
  def model_fn():
    inputs = tf.keras.Input((4,), dtype=tf.int32)
    table = tf.keras.layers.Embedding(9, 2, trainable=False)
    pooled = tf.keras.layers.GlobalAveragePooling1D()(table(inputs))
    return tff.learning.models.from_keras_model(
      tf.keras.Model(inputs, _head()(pooled)),
      loss=tf.keras.losses.MeanSquaredError(),
      input_spec=(tf.TensorSpec([None, 4], tf.int32), tf.TensorSpec([None, 1])),
    )

  assert not untrained_variables.changed_by_a_step(model_fn)


def test_batch_norm_in_training_is_found_by_what_it_does():
  names = untrained_variables.changed_by_a_step(
    linear_models.layers_fn(
      lambda: [tf.keras.layers.BatchNormalization(name='anything'), _head()]
    )
  )
  assert len(names) == 2
  assert all('moving' in name for name in names)


def test_a_model_of_which_nothing_is_trained_is_refused():
  with pytest.raises(ValueError, match='with trainable variables, found none'):
    learning.build_fed_avg(
      linear_models.layers_fn(lambda: [_backbone()]), **linear_models.WORK
    )


class Projection(tf.Module):
  def __init__(self):
    super().__init__()
    self.kernel = tf.Variable(tf.random.normal([3, 2]), name='of_a_module')

  def __call__(self, inputs):
    return inputs @ self.kernel


class _OfAModule(tf.keras.layers.Layer):
  """Keras does not see the variable of its module."""

  def __init__(self):
    super().__init__()
    self.module = Projection()

  def call(self, inputs):
    return self.module(inputs)


class _OfANestedList(tf.keras.layers.Layer):
  """Keras sees the layers of its lists; its generator has a state."""

  def __init__(self):
    super().__init__()
    self.generator = tf.random.Generator.from_seed(0)
    self.pairs = [[_head()], (tf.keras.layers.Dense(2),)]

  def call(self, inputs):
    (one,), (two,) = self.pairs
    return one(two(inputs)) + self.generator.normal([1])


@pytest.mark.parametrize(
  'build',
  [
    learning.build_fed_avg,
    functools.partial(learning.build_model_clipping_fed_avg, clipping_norm=1.0),
  ],
)
def test_a_variable_that_keras_does_not_see_is_refused_by_its_name(build):
  model_fn = linear_models.layers_fn(lambda: [_OfAModule(), _head()])
  with pytest.raises(ValueError, match='whose loss needs of_a_module:0, which'):
    build(model_fn, **linear_models.WORK)


def test_variables_that_keras_sees_are_not_refused():
  learning.build_fed_avg(
    linear_models.layers_fn(lambda: [_OfANestedList()]), **linear_models.WORK
  )
