"""The norm of an update and its angle to the last global update.

Source: Sec. 2.2, Figures 1 and 2: the magnitude of each client's update, and
the angle between it and the global update of the round before.

Departs from the paper: its last global update is the mean of the last round's
unclipped updates, which the server never sees if clients clip. Here the last
global update is x^t - x^{t-1}. Without clipping and noise the direction is the
same.
"""

import math
from collections.abc import Sequence

import tensorflow as tf

# What the numbers of `norm_and_angle` are called in the metrics.
NAMES = ('update_norm', 'angle_degrees')


def last_direction(
  model: Sequence[tf.Tensor],
  previous_model: Sequence[tf.Tensor],
  round_num: tf.Tensor,
) -> list[tf.Tensor]:
  """Returns the direction of the last global update, once for all clients.

  Args:
    model: The global model of this round, x^t.
    previous_model: The global model of the round before, x^{t-1}.
    round_num: t, from 0.

  Returns:
    x^t - x^{t-1} over its norm, as `float32`; NaN in the first round, or if it
    is zero.
  """
  last = _as_float32(
    [a - b for a, b in zip(model, previous_model, strict=True)]
  )
  scale = tf.where(round_num > 0, 1 / _norm(last), math.nan)
  return [value * scale for value in last]


def norm_and_angle(
  update: Sequence[tf.Tensor], direction: Sequence[tf.Tensor]
) -> tf.Tensor:
  """Returns the norm of `update`, and its angle to the last global update.

  Args:
    update: The update of a client, or the aggregate of all, of any types of
      floating-point numbers.
    direction: From `last_direction`.

  Returns:
    A `float32` tensor of shape `[2]`: the L2 norm, and the angle in degrees;
    NaN in the first round, and where one of the two updates is zero.
  """
  update = _as_float32(update)
  dot = tf.add_n(
    # Eight times as fast as `tf.tensordot`, for a product with a vector.
    [tf.reduce_sum(u * d) for u, d in zip(update, direction, strict=True)]
  )
  norm = _norm(update)
  cosine = tf.clip_by_value(dot / norm, -1.0, 1.0)
  return tf.stack([norm, tf.acos(cosine) * (180 / math.pi)])


def _as_float32(values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
  return [tf.cast(value, tf.float32) for value in values]


def _norm(update: Sequence[tf.Tensor]) -> tf.Tensor:
  return tf.linalg.global_norm(update)
