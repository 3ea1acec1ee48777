"""Rounds of an aggregator, and what tests ask of their results."""

import math
from collections.abc import Iterable, Iterator, Sequence
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
  """Returns the first round of a factory's process, of pairs by default."""
  given = () if weights is None else (weights,)
  process = factory.create(
    value_type or tff.TensorType(np.float32, [2]),
    *(tff.TensorType(np.float32) for _ in given),
  )
  return first_round(process, values, *given)


def first_round(
  process: tff.templates.AggregationProcess, *given: Sequence[Any]
) -> tff.templates.MeasuredProcessOutput:
  """Returns the first round of a process."""
  return process.next(process.initialize(), *given)


def rounds(
  process: tff.templates.AggregationProcess, cohorts: Iterable[Sequence[Any]]
) -> Iterator[tff.templates.MeasuredProcessOutput]:
  """Yields one round after the other, each from the state of the one before."""
  state = process.initialize()
  for cohort in cohorts:
    output = process.next(state, cohort)
    state = output.state
    yield output


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


def check_is_gaussian(samples: Any, stddev: float) -> None:
  """Holds that samples are of N(0, stddev^2), of this width alone."""
  assert ks_statistic(samples, stddev) < KS_LIMIT
  for factor in (1 / 1.5, 1.5):
    assert ks_statistic(samples, factor * stddev) > KS_LIMIT
