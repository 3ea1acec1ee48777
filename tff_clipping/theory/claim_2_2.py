r"""Claim 2.2 in any dimension: clipped rounds that reach x* from anywhere.

With one local step, all clients in each round and a small enough η_l, CE-FedAvg
converges to the minimiser of every linear regression, from any start and for
any clipping norm. A round in which somebody is clipped takes a fixed piece off
the squared distance, so such rounds end; all others contract it.

Departs from the paper: its proof shows that x* is a point of rest, with an η_l
that has no c in it. docs/proofs.md has a proof of what the claim says.

Source: Claim 2.2, and docs/proofs.md for the proof.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tff_clipping import argument_checks
from tff_clipping.theory.quadratics import LinearRegression


class Constants(NamedTuple):
  """What the proof takes of a problem.

  Attributes:
    smoothness: L, the largest eigenvalue of any H_i.
    convexity: λ, the smallest eigenvalue above 0 of the mean of the H_i: f is
      that convex in every direction in which a gradient can point.
    gradient_at_minimiser: G* = max_i ||∇f_i(x*)||, equal for all minimisers.
  """

  smoothness: float
  convexity: float
  gradient_at_minimiser: float


def measure_constants(problem: LinearRegression) -> Constants:
  """L, λ and G* of a problem.

  Args:
    problem: The clients' losses.

  Raises:
    ValueError: All A_i are zero.
  """
  hessians = problem.hessians
  eigenvalues = np.linalg.eigvalsh(hessians.mean(axis=0))
  largest = float(eigenvalues[-1])
  if largest <= 0.0:
    raise ValueError('`problem` must not be constant, found all A_i zero.')
  gradients = problem.gradients(problem.minimiser())
  return Constants(
    smoothness=float(np.linalg.eigvalsh(hessians).max()),
    convexity=float(eigenvalues[eigenvalues > 1e-12 * largest][0]),
    gradient_at_minimiser=float(np.linalg.norm(gradients, axis=1).max()),
  )


def converging_learning_rate(
  problem: LinearRegression, clipping_norm: float
) -> float:
  """The largest η_l of the proof: min(c λ / (4 L G*), λ / (2 L²)).

  With it and Q = 1, η_g = 1, all clients in each round, CE-FedAvg converges to
  the minimiser nearest to where it starts. It is far below
  `claims.preserving_learning_rate`, which is enough around x*.

  Args:
    problem: The clients' losses.
    clipping_norm: c, or `math.inf`.

  Source: docs/proofs.md, Claim 2.2.
  """
  argument_checks.check_positive('clipping_norm', clipping_norm, allow_inf=True)
  smoothness, convexity, gradient = measure_constants(problem)
  contracting = convexity / (2 * smoothness**2)
  if gradient == 0.0:
    return contracting
  return min(
    clipping_norm * convexity / (4 * smoothness * gradient), contracting
  )


def least_decrease(
  problem: LinearRegression, clipping_norm: float, client_learning_rate: float
) -> float:
  """By how much ||x − x*||² falls at least in a round that clips somebody.

  It is (3 λ / (4 η_l L²) − 1) c², so at least c²/2 for the largest rate, and
  5 c² for λ / (8 L²).

  Args:
    problem: The clients' losses.
    clipping_norm: c.
    client_learning_rate: η_l, at most `converging_learning_rate`.

  Raises:
    ValueError: The rate is larger.

  Source: docs/proofs.md, Claim 2.2.
  """
  argument_checks.check_positive('clipping_norm', clipping_norm)
  _check_rate(problem, clipping_norm, client_learning_rate)
  smoothness, convexity, _ = measure_constants(problem)
  gain = 3 * convexity / (4 * client_learning_rate * smoothness**2)
  return (gain - 1) * clipping_norm**2


def most_clipped_rounds(
  problem: LinearRegression,
  x: ArrayLike,
  clipping_norm: float,
  client_learning_rate: float,
) -> int:
  """In how many rounds from x anybody can be clipped: finitely many.

  Args:
    problem: The clients' losses.
    x: [d], the first model.
    clipping_norm: c.
    client_learning_rate: η_l, at most `converging_learning_rate`.

  Source: docs/proofs.md, Claim 2.2.
  """
  decrease = least_decrease(problem, clipping_norm, client_learning_rate)
  distance = np.linalg.norm(problem._point(x) - nearest_minimiser(problem, x))
  return math.floor(float(distance) ** 2 / decrease)


def contraction(
  problem: LinearRegression, client_learning_rate: float
) -> float:
  """1 − η_l λ: what a round without clipping leaves of ||x − x*||², at most.

  Args:
    problem: The clients' losses.
    client_learning_rate: η_l, at most `converging_learning_rate`.

  Source: docs/proofs.md, Claim 2.2.
  """
  _check_rate(problem, math.inf, client_learning_rate)
  return 1.0 - client_learning_rate * measure_constants(problem).convexity


def nearest_minimiser(problem: LinearRegression, x: ArrayLike) -> np.ndarray:
  """The minimiser of f that is nearest to x, [d].

  Args:
    problem: The clients' losses.
    x: [d].
  """
  point = problem._point(x)
  stacked = np.concatenate(problem.matrices)
  residual = np.concatenate(problem.targets) - stacked @ point
  return point + np.linalg.lstsq(stacked, residual, rcond=None)[0]


def _check_rate(
  problem: LinearRegression, clipping_norm: float, client_learning_rate: float
) -> None:
  argument_checks.check_positive('client_learning_rate', client_learning_rate)
  limit = converging_learning_rate(problem, clipping_norm)
  if client_learning_rate > limit:
    raise ValueError(
      f'`client_learning_rate` must be at most {limit:.6g}, found '
      f'{client_learning_rate:.6g}.'
    )
