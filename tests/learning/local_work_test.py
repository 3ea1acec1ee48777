"""The local steps of a client read and write in order, and cost no more."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import linear_models, one_client
from tff_clipping.learning import client_batches, steps
from tff_clipping.learning.local_work import LocalWork


def _mlp_of(*units):
  """Returns a function of an MLP with so many units in each layer."""
  return linear_models.layers_fn(
    lambda: (
      [tf.keras.layers.Dense(n, activation='tanh') for n in units[:-1]]
      + [tf.keras.layers.Dense(units[-1])]
    ),
    num_features=5,
    is_classifier=True,
  )


_mlp_fn = _mlp_of(7, 3)


def _mlp_data():
  rng = np.random.default_rng(4)
  examples = collections.OrderedDict(
    x=rng.normal(size=[11, 5]).astype(np.float32),
    y=rng.integers(3, size=11).astype(np.int32),
  )
  start = [
    rng.normal(size=shape).astype(np.float32)
    for shape in ([5, 7], [7], [7, 3], [3])
  ]
  return examples, start


def _plain_sgd(model, start, examples, seed):
  """The loop of Algorithm 1 with nothing else: what SGD is to cost."""
  variables = model.trainable_variables
  leaves = tf.nest.flatten(examples)
  num_examples = tf.shape(leaves[0])[0]
  indices = client_batches.batch_indices(
    tf.maximum(num_examples, 1),
    one_client.LOCAL_STEPS,
    one_client.BATCH_SIZE,
    seed,
  )
  num_steps = tf.where(num_examples > 0, one_client.LOCAL_STEPS, 0)

  def take_step(step):
    with tf.control_dependencies([step]):
      rows = tf.gather(indices, step)
      batch = [tf.gather(leaf, rows) for leaf in leaves]
      batch = tf.nest.pack_sequence_as(model.input_spec, batch)
      with tf.GradientTape() as tape:
        loss = model.forward_pass(batch, training=True).loss
      taken = [
        tf.raw_ops.ResourceApplyGradientDescent(
          var=variable.handle,
          alpha=tf.cast(one_client.RATE, variable.dtype),
          delta=gradient,
        )
        for variable, gradient in zip(
          variables, tape.gradient(loss, variables), strict=True
        )
      ]
    with tf.control_dependencies(taken):
      return [step + 1]

  started = [
    variable.assign(value, read_value=False)
    for variable, value in zip(variables, start, strict=True)
  ]
  with tf.control_dependencies(started):
    first = tf.identity(0)
  (done,) = tf.while_loop(lambda step: step < num_steps, take_step, [first])
  with tf.control_dependencies([done]):
    return [
      variable.read_value() - value
      for variable, value in zip(variables, start, strict=True)
    ]


def _library_training(model, start, examples, seed, step):
  work = LocalWork(model_fn=_mlp_fn, local_step=step, **one_client.WORK)
  weights = tff.learning.models.ModelWeights(start, [])
  return work.train(
    model, weights, examples, seed=seed, round_num=tf.constant(0)
  )


def _graph_and_update(build):
  """Returns how many operations of each type a graph has, edges, result."""
  examples, start = _mlp_data()
  with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
    model = _mlp_fn()
    update = build(
      model,
      [tf.constant(value) for value in start],
      tf.nest.map_structure(tf.constant, examples),
      tf.constant(one_client.SEED),
    )
    one_client.initialize(session, model)
    result = session.run(update)
  definition = graph.as_graph_def()
  counts = collections.Counter(node.op for node in definition.node)
  for function in definition.library.function:
    counts.update(node.op for node in function.node_def)
  # What the round's number is given as.
  counts.pop('Const')
  # What operations wait for.
  parts = (definition, *definition.library.function)
  nodes = [getattr(part, 'node', None) or part.node_def for part in parts]
  num_edges = sum(len(node.input) for part in nodes for node in part)
  return counts, num_edges, result


@pytest.mark.slow
def test_sgd_is_the_plain_loop_in_its_graph_and_its_bits():
  *plain, expected = _graph_and_update(_plain_sgd)
  *ours, found = _graph_and_update(
    lambda *arguments: _library_training(*arguments, steps.Sgd())
  )
  assert ours == plain
  for a, b in zip(found, expected, strict=True):
    assert a.tobytes() == b.tobytes()
  # The comparison would see what another step adds.
  *other, _ = _graph_and_update(
    lambda *arguments: _library_training(*arguments, steps.Momentum())
  )
  assert other[0] != plain[0]


class _Anywhere(steps.LocalStep):
  """Asks for gradients in several places, before and after where it is."""

  def direction(self, context, memory):
    up = context.gradient([x + 1.0 for x in context.model])
    here = context.gradient()
    down = context.gradient([x - 3.0 for x in context.model])
    return [
      a + 2 * b + 4 * c for a, b, c in zip(up, here, down, strict=True)
    ], memory


class _HereFirst(steps.LocalStep):
  """Goes by the gradient elsewhere, once it has the one where it is."""

  def direction(self, context, memory):
    here = context.gradient()
    there = context.gradient(
      [x - g for x, g in zip(context.model, here, strict=True)]
    )
    again = context.gradient()
    return [
      a - b + c for a, b, c in zip(here, there, again, strict=True)
    ], memory


@pytest.mark.parametrize(
  ('step', 'direction'),
  [
    (
      _Anywhere(),
      lambda x, g: g(x + 1.0) + 2 * g(x) + 4 * g(x - 3.0),
    ),
    (_HereFirst(), lambda x, g: 2 * g(x) - g(x - g(x))),
  ],
)
def test_a_gradient_is_where_it_is_asked_for(step, direction):
  expected = one_client.descend(
    lambda x, rows, _: direction(x, lambda at: linear_models.gradient(at, rows))
  )
  found = one_client.train_linear(step, runs=5)
  np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


class _Swapped(steps.LocalStep):
  """Moves each of two variables by what another one says."""

  def direction(self, context, memory):
    w1, b1, w2, b2 = context.gradient()
    _, x1, _, x2 = context.model
    return [tf.zeros_like(w1), x2, tf.zeros_like(w2), x1], memory


def test_variables_are_read_before_any_is_moved():
  rng = np.random.default_rng(0)
  examples, start = _mlp_data()
  start = [start[0][:, :3], start[1][:3], rng.normal(size=[3, 3]), start[3]]
  update = one_client.train(
    _mlp_of(3, 3),
    examples,
    start,
    _Swapped(),
    local_steps=2,
    client_learning_rate=0.5,
    runs=20,
  )
  # x1 - x2/2 and x2 - x1/2, twice: 5/4 x1 - x2 and 5/4 x2 - x1.
  x1, x2 = start[1], start[3]
  np.testing.assert_allclose(update[1], 0.25 * x1 - x2, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(update[3], 0.25 * x2 - x1, rtol=1e-5, atol=1e-6)
  assert not update[0].any()
  assert not update[2].any()


class _Random(steps.LocalStep):
  """Goes in a direction that is drawn from the key."""

  def direction(self, context, memory):
    return [
      tf.random.stateless_normal(x.shape, context.key) for x in context.start
    ], memory


def test_keys_differ_between_steps_and_clients_and_repeat():
  one = one_client.train_linear(_Random(), local_steps=1, runs=2)
  two = one_client.train_linear(_Random(), local_steps=2)
  other = one_client.train_linear(_Random(), local_steps=1, seed=(3, 12))
  assert np.linalg.norm(two - 2 * one) > 0.01
  assert np.linalg.norm(other - one) > 0.01


class _Unused(tf.keras.layers.Layer):
  """Has a variable that the loss does not need."""

  def build(self, input_shape):
    self.kernel = self.add_weight('kernel', [3], initializer='zeros')

  def call(self, inputs):
    return inputs


@pytest.mark.parametrize('step', [steps.Sgd(), steps.Momentum()])
def test_a_variable_that_the_loss_does_not_need_stays(step):
  model_fn = linear_models.layers_fn(
    lambda: [_Unused(), tf.keras.layers.Dense(1, use_bias=False)],
    num_features=2,
  )
  update = one_client.train(
    model_fn,
    dict(x=np.ones([3, 2], np.float32), y=np.ones([3, 1], np.float32)),
    [np.array([1.0, -2.0, 0.5]), np.zeros([2, 1])],
    step,
    local_steps=2,
  )
  assert not update[0].any()
  assert update[1].all()
