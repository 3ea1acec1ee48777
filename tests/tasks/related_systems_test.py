"""Runs the examples of related systems on the embedded digits."""

import math
import pathlib
import re
import runpy
import types

import numpy as np
import pytest

from tff_clipping.privacy.accounting import renyi

pytest.importorskip('tensorflow_federated')

import tensorflow as tf

from tasks.models import keras_models

_FOLDER = pathlib.Path(__file__).parents[2] / 'examples' / 'related_systems'


def _load(name):
  return runpy.run_path(str(_FOLDER / f'{name}.py'))


def _accuracy(printed):
  return float(re.search(r': ([\d.]+) % ', printed)[1])


def test_where_all_are_clipped_the_typical_loss_is_that_of_dp():
  # Mironov, Talwar, Zhang 2019, at whole orders, with the conversion of
  # Triastcyn and Faltings: T D + log(1/delta) / (a - 1).
  orders = range(2, 65)
  divergences = renyi.compute_poisson_divergences(1.5, 1 / 24, orders)
  expected = min(
    100 * d + math.log(1e5) / (a - 1)
    for a, d in zip(orders, divergences, strict=True)
  )
  found = _load('typical_loss')['typical_epsilon'](
    [np.ones(3)], 1 / 24, 1.5, 100
  )
  assert found == pytest.approx(expected, rel=1e-9)


def test_the_typical_loss_is_of_the_mean_client():
  typical_epsilon = _load('typical_loss')['typical_epsilon']
  half = typical_epsilon([np.full(7, 0.5)], 1 / 24, 1.5, 100)
  twice = typical_epsilon([np.ones(7)], 1 / 24, 3.0, 100)
  assert half == pytest.approx(twice, rel=1e-9)
  mixed = typical_epsilon([np.array([1.0, 0.0])], 1 / 24, 1.5, 100)
  assert half < mixed < typical_epsilon([np.ones(2)], 1 / 24, 1.5, 100)


@pytest.mark.slow
def test_the_typical_loss_is_no_smaller_where_nearly_all_are_clipped(capsys):
  _load('typical_loss')['main']([])
  printed = capsys.readouterr().out
  losses = re.search(
    r'ε = 1.5: ([\d.]+), where all are clipped ([\d.]+)', printed
  )
  typical, of_all = map(float, losses.groups())
  assert 1.5 < typical <= of_all
  assert typical == pytest.approx(of_all, rel=0.05)
  assert '1.84 (commit 44967cd3)' in printed
  assert _accuracy(printed) > 30


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'flags', 'epsilon', 'published', 'least', 'most'),
  [
    # A client reports once, so that z is twice that of one Gaussian mechanism
    # of sensitivity c, which is 2.582. It learns next to nothing.
    (
      *('local_dp', [], 'ε = 1.5 (δ = 1e-05, z = 5.165, k = 1)'),
      *('13.80 ± 5.45 % (commit 44967cd3)', 0, 40),
    ),
    (
      *(
        'noise_in_local_steps',
        ['--dp_sgd'],
        'ε = 1.5 (δ = 1e-05, z = 1.308, ',
      ),
      *('at rate 4,', 50, 100),
    ),
    (
      *('noise_in_local_steps', [], 'ε = 1.5 (δ = 1e-05, z = 11.568, '),
      *('at rate 0.1,', 15, 60),
    ),
    (
      *('model_clipping_with_noise', [], 'ε = 1.5 (δ = 1e-05, z = 1.846)'),
      *('6.39 ± 4.41 % (commit 44967cd3)', 0, 40),
    ),
    (
      *('geyer', [], 'ε = 8 (δ = 0.001, z = 1.351)'),
      *('nothing (commit 44967cd3)', 40, 90),
    ),
  ],
)
def test_a_system_learns_as_much_as_its_noise_allows(
  capsys, name, flags, epsilon, published, least, most
):
  _load(name)['main'](flags)
  printed = capsys.readouterr().out
  assert epsilon in printed
  assert published in printed
  assert least < _accuracy(printed) < most


class _NoTraining:
  """A `Setting` without data, whose runs have an accuracy of 50 %."""

  def __init__(self, flags, scale, *args, **kwargs):
    self.task = types.SimpleNamespace(
      client_ids=[str(i) for i in range(scale.num_clients)]
    )

  def train(self, *args, **kwargs):
    return 50.0


@pytest.mark.parametrize(
  ('epsilon', 'published'), [(8, '36.76 ± 0.95 %'), (6, 'nothing')]
)
def test_published_accuracies_are_those_of_the_same_epsilon(
  monkeypatch, capsys, epsilon, published
):
  name = 'examples.related_systems.setting.Setting'
  monkeypatch.setattr(name, _NoTraining)
  _load('geyer')['main'](['--data_dir=x', f'--epsilon={epsilon}'])
  printed = capsys.readouterr().out
  assert f'ε = {epsilon} ' in printed
  assert f'published: {published} ' in printed


def test_a_search_without_images_is_refused_at_once(capsys):
  with pytest.raises(SystemExit):
    _load('noise_in_local_steps')['main'](['--search'])
  assert '--search needs --data_dir' in capsys.readouterr().err


def test_noise_in_local_steps_refuses_a_client_with_more_than_n_examples():
  scale = _load('noise_in_local_steps')['choose_scale'](48, 4000, False)
  model = keras_models.create_mlp((28, 28, 1), 10)

  def train(num_examples):
    return _load('noisy_steps')['train_client'](
      model.get_weights(),
      np.zeros([num_examples, 784]),
      np.zeros(num_examples, int),
      noise_multiplier=1.0,
      learning_rate=0.1,
      scale=scale,
      rng=np.random.default_rng(0),
    )

  n = scale.examples_per_client
  train(n)
  with pytest.raises(ValueError, match=f'at most the {n} examples .*{n + 1}'):
    train(n + 1)


def test_noise_in_local_steps_clips_the_gradient_of_each_example():
  rng = np.random.default_rng(0)
  x = rng.random([6, 28, 28, 1])
  model = keras_models.create_mlp((28, 28, 1), 10, input_dtype=tf.float32)
  w1, b1, w2, b2 = model.get_weights()
  model.set_weights([w1, b1, 30 * w2, b2])
  # Three images have the class that the model is sure of, and short gradients.
  y = (np.argmax(model(x), axis=1) + [0, 0, 0, 1, 1, 1]) % 10
  loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  expected, norms = [0.0] * 4, []
  for i in range(6):
    with tf.GradientTape() as tape:
      value = loss(y[i : i + 1], model(x[i : i + 1]))
    gradient = tape.gradient(value, model.trainable_variables)
    norms.append(float(tf.linalg.global_norm(gradient)))
    expected = [
      e + g / max(norms[-1], 1.0)
      for e, g in zip(expected, gradient, strict=True)
    ]
  assert min(norms) < 1 < max(norms)
  found = _load('noisy_steps')['sum_clipped_gradients'](
    model.get_weights(), x.reshape(6, 784), y
  )
  for one, other in zip(found, expected, strict=True):
    # Keras computes in `float32`.
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
