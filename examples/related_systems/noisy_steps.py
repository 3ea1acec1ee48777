"""Local steps with noise: each example's gradient is clipped, noise is added.

The mechanism of `noise_in_local_steps.py`, with its ε. In each of a client's Q
steps each of its up to n examples joins by a coin of probability B / n. The
gradient of an example that joined is clipped to C, and the step goes along the
sum of these gradients and N(0, (z C)² I), divided by B. Fixed groups of clients
take turns, so that the steps of k rounds are Q k Poisson-sampled Gaussian
mechanisms. A client with more than n examples is refused: ε is computed from n.
"""

import math
from typing import NamedTuple

import dp_accounting
import numpy as np

_CLIPPING_NORM = 1.0  # C


class Scale(NamedTuple):
  """T, N, n, Q, B and the number of groups of clients that take turns."""

  num_rounds: int
  num_clients: int
  examples_per_client: int
  local_steps: int
  batch_size: int
  num_turns: int


def build_event(noise_multiplier, scale):
  """Returns the steps that an example may be in."""
  step = dp_accounting.PoissonSampledDpEvent(
    scale.batch_size / scale.examples_per_client,
    dp_accounting.GaussianDpEvent(noise_multiplier),
  )
  k = math.ceil(scale.num_rounds / scale.num_turns)
  return dp_accounting.SelfComposedDpEvent(step, scale.local_steps * k)


def sum_clipped_gradients(weights, x, y):
  """Returns the sum of the examples' gradients, each clipped by itself.

  In a dense layer the gradient of an example is the product of two rows, the
  layer's inputs and the gradient of its outputs (Goodfellow 2015).
  """
  w1, b1, w2, b2 = weights
  hidden = np.maximum(x @ w1 + b1, 0)
  logits = hidden @ w2 + b2
  odds = np.exp(logits - logits.max(axis=1, keepdims=True))
  second = odds / odds.sum(axis=1, keepdims=True)
  second[np.arange(len(y)), y] -= 1
  first = (second @ w2.T) * (hidden > 0)
  squares = sum(
    (1 + np.square(inputs).sum(axis=1)) * np.square(outputs).sum(axis=1)
    for inputs, outputs in ((x, first), (hidden, second))
  )
  scale = _CLIPPING_NORM / np.maximum(np.sqrt(squares), _CLIPPING_NORM)
  first, second = first * scale[:, None], second * scale[:, None]
  return [x.T @ first, first.sum(0), hidden.T @ second, second.sum(0)]


def train_client(weights, x, y, noise_multiplier, learning_rate, scale, rng):
  """Returns the weights after a client's local steps."""
  n, batch_size = scale.examples_per_client, scale.batch_size
  if len(x) > n:
    raise ValueError(
      f'`x` must have at most the {n} examples that ε is computed from, found '
      f'{len(x)}.'
    )
  stddev = np.float32(noise_multiplier * _CLIPPING_NORM)
  for _ in range(scale.local_steps):
    joins = rng.random(len(x)) < batch_size / n
    sums = sum_clipped_gradients(weights, x[joins], y[joins])
    weights = [
      w
      - np.float32(learning_rate / batch_size)
      * (g + stddev * rng.standard_normal(g.shape, np.float32))
      for w, g in zip(weights, sums, strict=True)
    ]
  return weights
