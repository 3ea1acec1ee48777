"""Models of which only a part is trained: a head, or a low-rank adapter.

Each function is one for `--model`. The backbone is what pretrain.py has trained
on public data; of it, nothing is trained, clipped or noised here.
"""

import numpy as np
import tensorflow as tf

BACKBONE = 'backbone.npz'
_UNITS, _RANK = 128, 4


class LowRank(tf.keras.layers.Layer):
  """A dense layer whose matrix W moves by A B: W and A are frozen."""

  def __init__(self, units, rank, kernel, bias):
    super().__init__()
    self._units, self._rank = units, rank
    self._kernel, self._bias = kernel, bias

  def build(self, input_shape):
    size = input_shape[-1]
    constant = tf.keras.initializers.Constant
    self.w = self.add_weight(
      'w', [size, self._units], None, constant(self._kernel), trainable=False
    )
    self.c = self.add_weight(
      'c', [self._units], None, constant(self._bias), trainable=False
    )
    self.a = self.add_weight(
      'a', [size, self._rank], None, 'glorot_uniform', trainable=False
    )
    # With B = 0, the first model is the backbone's.
    self.b = self.add_weight('b', [self._rank, self._units], None, 'zeros')

  def call(self, x):
    moved = tf.matmul(tf.matmul(x, self.a), self.b)
    return tf.nn.tanh(tf.matmul(x, self.w) + moved + self.c)


def create_whole(input_shape, num_classes):
  """All layers are trained, from random weights."""
  return tf.keras.Sequential(
    [
      tf.keras.layers.Dense(_UNITS, 'tanh', input_shape=input_shape),
      tf.keras.layers.Dense(num_classes),
    ]
  )


def create_with_head(input_shape, num_classes):
  """The backbone is frozen; a new head is trained."""
  kernel, bias = _read_backbone()
  constant = tf.keras.initializers.Constant
  return tf.keras.Sequential(
    [
      tf.keras.layers.Dense(
        _UNITS,
        'tanh',
        input_shape=input_shape,
        kernel_initializer=constant(kernel),
        bias_initializer=constant(bias),
        trainable=False,
      ),
      tf.keras.layers.Dense(num_classes),
    ]
  )


def create_with_adapter(input_shape, num_classes):
  """The backbone is frozen; an adapter of it and a new head are trained."""
  return tf.keras.Sequential(
    [
      tf.keras.Input(input_shape),
      LowRank(_UNITS, _RANK, *_read_backbone()),
      tf.keras.layers.Dense(num_classes),
    ]
  )


def _read_backbone():
  with np.load(BACKBONE) as backbone:
    return backbone['kernel'], backbone['bias']
