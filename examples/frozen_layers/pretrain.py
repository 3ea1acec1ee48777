"""Writes backbone.npz, trained on public data, and clients.npz, to be private.

Both are of one kind, with other classes: 1,000 clients have 8 examples each.
"""

import models
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(0)
tf.keras.utils.set_random_seed(0)
_SIZE, _CLIENTS, _EXAMPLES = 32, 1000, 8
hidden = rng.normal(size=[_SIZE, 16]) / np.sqrt(_SIZE)


def draw(number, classes):
  """Draws examples, whose class is a function of 16 hidden features."""
  x = rng.normal(size=[number, _SIZE]).astype(np.float32)
  return x, np.argmax(np.tanh(3 * x @ hidden) @ classes, axis=1)


x, y = draw(20_000, rng.normal(size=[16, 20]))
public = models.create_whole([_SIZE], 20)
public.compile('adam', tf.keras.losses.SparseCategoricalCrossentropy(True))
public.fit(x, y, batch_size=100, epochs=10, verbose=0)
kernel, bias = public.layers[0].get_weights()
np.savez(models.BACKBONE, kernel=kernel, bias=bias)

classes = rng.normal(size=[16, 4])
x, y = draw(_CLIENTS * _EXAMPLES, classes)
x_test, y_test = draw(2000, classes)
np.savez(
  'clients.npz',
  x=x,
  y=y,
  client=np.repeat(np.arange(_CLIENTS), _EXAMPLES),
  x_test=x_test,
  y_test=y_test,
)
