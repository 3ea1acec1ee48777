"""One round of an aggregator, and what tests ask of its result."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from scipy import stats

# Of `ks_statistic`. P(sqrt(n) D > 2.9) is 1e-7 for the distribution that is
# claimed (Kolmogorov). Where the standard deviation is off by a factor of 1.5
# either way, D is 0.09 and more, and sqrt(n) D is about 13 for n = 20,000, 9
# for 10,000 and 5 for 4,096.
KS_LIMIT = 2.9


def run(
  factory: Any,
  values: Sequence[Any],
  value_type: tff.Type | None = None,
  weights: Sequence[float] | None = None,
) -> tff.templates.MeasuredProcessOutput:
  """Returns the first round of a new process.

  Args:
    factory: Makes the process.
    values: What the clients send.
    value_type: Its type; a vector of two elements if it is not given.
    weights: Of the clients, for a weighted factory.
  """
  given = () if weights is None else (weights,)
  process = factory.create(
    value_type or tff.TensorType(np.float32, [2]),
    *(tff.TensorType(np.float32) for _ in given),
  )
  return process.next(process.initialize(), values, *given)


def vectors(*rows: Sequence[float]) -> list[np.ndarray]:
  """Returns what clients send: an array of each row."""
  return [np.array(row, np.float32) for row in rows]


def l2_norm(value: Any) -> float:
  """Returns the norm of all tensors of a value together, in float64."""
  leaves = tf.nest.flatten(value)
  return math.sqrt(
    sum(np.sum(np.square(np.asarray(x, np.float64))) for x in leaves)
  )


def ks_statistic(samples: Any, stddev: float) -> float:
  """Returns sqrt(n) times the Kolmogorov-Smirnov distance to N(0, stddev^2)."""
  found = stats.kstest(np.ravel(samples), 'norm', args=(0, stddev))
  return math.sqrt(np.size(samples)) * found.statistic
