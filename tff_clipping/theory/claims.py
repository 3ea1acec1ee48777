r"""Claims 2.1 and 2.2 and Table 1: model clipping against difference clipping.

On a line everything has a closed form. A client's Q steps move the model by
w_i (x − m_i) towards its own minimiser m_i, with w_i = 1 − (1 − η_l h_i)^Q and
curvature h_i; what is clipped is piecewise linear and does not fall, so its
zero is found exactly. With `fractions.Fraction` as arguments, all results of
`stationary_interval` are exact fractions.

Source: Sec. 2.1.
"""

import math
from fractions import Fraction
from numbers import Rational
from typing import NamedTuple

import numpy as np

from tff_clipping import argument_checks
from tff_clipping.theory import quadratics

Number = float | Fraction


class ScalarClients(NamedTuple):
  """Clients on a line: f_i(x) = 1/2 h_i (x − m_i)^2 + constant.

  Attributes:
    curvatures: h_i > 0; for f_i = 1/2 (a x − b)^2 it is a².
    minimisers: m_i; there it is b / a.
  """

  curvatures: tuple[Number, ...]
  minimisers: tuple[Number, ...]

  def to_linear_regression(self) -> quadratics.LinearRegression:
    """The same problem for the functions of any dimension."""
    scales = [math.sqrt(h) for h in self.curvatures]
    return quadratics.LinearRegression(
      matrices=[np.array([[scale]]) for scale in scales],
      targets=[
        np.array([scale * float(m)])
        for scale, m in zip(scales, self.minimisers, strict=True)
      ],
    )


# Eq. (8): (x − 4)², (2x − 1)² and (6x + 1)², each halved. x* = 0.
TABLE_1_CLIENTS = ScalarClients(
  curvatures=(Fraction(1), Fraction(4), Fraction(36)),
  minimisers=(Fraction(4), Fraction(1, 2), Fraction(-1, 6)),
)


def claim_2_1_clients(clipping_norm: Number, k: Number) -> ScalarClients:
  """b = (−c/2, −c/2, kc), f_i = (x − b_i)²/2, with x* = (k − 1) c / 3.

  Args:
    clipping_norm: c.
    k: Where the third client's minimiser is, in units of c.

  Source: proof of Claim 2.1.
  """
  argument_checks.check_positive('clipping_norm', clipping_norm)
  one = clipping_norm / clipping_norm
  half = -clipping_norm / 2
  return ScalarClients((one,) * 3, (half, half, k * clipping_norm))


def claim_2_1_least_k(shrinkage: Number) -> Number:
  """(3 + λ) / (3 − 2λ): from this k on, model clipping misses x*.

  The proof asks for k > 4 and says that λc / (3 − 2λ) is then the fixed point
  for every λ in (0, 1). The client at kc is clipped there exactly if
  λ²/(3 − 2λ) + (1 − λ) k >= 1, that is k >= (3 + λ) / (3 − 2λ), which rises
  from 1 to 4 with λ. So k > 4 is what it takes for all λ at once, not for one
  of them; below, nothing is clipped and model clipping does reach x*. The same
  holds for every λ in (−1, 1), that is, also for 1 < η_l < 2 and odd Q, which
  the claim covers ('any η_l > 0') and the proof does not.

  Args:
    shrinkage: λ = (1 − η_l)^Q, in (−1, 1).

  Source: derived from the proof of Claim 2.1.
  """
  if not -1 < shrinkage < 1:
    raise ValueError(
      f'`shrinkage` must be between -1 and 1, found {shrinkage}.'
    )
  return (3 + shrinkage) / (3 - 2 * shrinkage)


def claim_2_1_fixed_point(
  clipping_norm: Number, k: Number, shrinkage: Number
) -> Number:
  """The one fixed point of x = 1/3 Σ_i clip(λx + (1 − λ) b_i, c).

  λc / (3 − 2λ) if k >= (3 + λ)/(3 − 2λ), the paper's case; by the same argument
  −(2 − λ) c / (3 − 2λ) if k <= −(3 − λ)/(3 − 2λ); otherwise nothing is clipped
  and it is x* = (k − 1) c / 3. It is unique, and reached from everywhere,
  because the map contracts by |λ|.

  Args:
    clipping_norm: c.
    k: Where the third client's minimiser is, in units of c; any number.
    shrinkage: λ = (1 − η_l)^Q, in (−1, 1).

  Source: eq. (5), proof of Claim 2.1.
  """
  argument_checks.check_positive('clipping_norm', clipping_norm)
  if k >= claim_2_1_least_k(shrinkage):
    return shrinkage * clipping_norm / (3 - 2 * shrinkage)
  if k <= -(3 - shrinkage) / (3 - 2 * shrinkage):
    return -(2 - shrinkage) * clipping_norm / (3 - 2 * shrinkage)
  return (k - 1) * clipping_norm / 3


def stationary_interval(
  clients: ScalarClients,
  *,
  clipping_norm: Number | float = math.inf,
  local_steps: float,
  client_learning_rate: Number,
) -> tuple[Number, Number]:
  """All x with Σ_i clip(Λ_i ∇f_i(x), c) = 0: where CE-FedAvg can rest.

  The sum does not fall with x, so these x are one interval. It is one point
  unless as many clients are clipped on either side as to balance, with none in
  between.

  Args:
    clients: The clients' losses.
    clipping_norm: c, or `math.inf`.
    local_steps: Q, or `math.inf`.
    client_learning_rate: η_l. For infinite Q it must be below 2 / max h_i; for
      even Q too, above that the local steps go away from the minimiser. For
      odd Q the point exists with any η_l, though the rounds may not reach it.

  Returns:
    The lower and the upper end.

  Raises:
    ValueError: The local steps diverge.

  Source: proof of Claim 2.2.
  """
  argument_checks.check_positive('clipping_norm', clipping_norm, allow_inf=True)
  weights = _weights(clients, local_steps, client_learning_rate)
  minimisers = clients.minimisers
  if math.isinf(clipping_norm):
    mean = sum(w * m for w, m in zip(weights, minimisers, strict=True)) / sum(
      weights
    )
    return mean, mean
  given = (clipping_norm, *weights, *minimisers)
  is_exact = all(isinstance(each, Rational) for each in given)
  # Of floats, the sum of clients that balance would not be quite 0.
  ends = _find_zeros(
    [*map(_to_fraction, weights)],
    [*map(_to_fraction, minimisers)],
    _to_fraction(clipping_norm),
  )
  if is_exact:
    return ends
  return float(ends[0]), float(ends[1])


def stationary_point(
  clients: ScalarClients,
  *,
  clipping_norm: Number | float = math.inf,
  local_steps: float,
  client_learning_rate: Number,
) -> Number:
  """The middle of `stationary_interval`, which mostly is one point."""
  low, high = stationary_interval(
    clients,
    clipping_norm=clipping_norm,
    local_steps=local_steps,
    client_learning_rate=client_learning_rate,
  )
  return low if low == high else (low + high) / 2


def table_1() -> dict[tuple[float, float], Number]:
  """Table 1 as exact fractions, by (c, Q): 0, 13/9, 1/2 and 2/3.

  The table does not give η_l, and no single η_l gives all four cells. Infinite
  Q needs η_l < 1/18 (then the point does not depend on it), but at Q = 1 and
  such η_l the norm c = 1 cuts nothing at x* = 0, where the largest update is
  6 η_l: the point 1/2 needs η_l >= 2/7, and between 1/6 and 2/7 it is
  (6 − 1/η_l)/5. The caption speaks of 'gradient clipping', and so read the
  cell is right for every η_l: the gradient is cut to 1, and so the update
  η_l ∇f_i to c = η_l. Here η_l = 1/36, and c = η_l in that one cell.

  Source: Table 1, eq. (8).
  """
  rate = Fraction(1, 36)
  cells: dict[tuple[float, float], Number] = {
    (math.inf, 1): math.inf,
    (math.inf, math.inf): math.inf,
    (1, 1): rate,
    (1, math.inf): Fraction(1),
  }
  return {
    (norm, steps): stationary_point(
      TABLE_1_CLIENTS,
      clipping_norm=clipping_norm,
      local_steps=steps,
      client_learning_rate=rate,
    )
    for (norm, steps), clipping_norm in cells.items()
  }


def huberised_loss(
  x: np.ndarray,
  *,
  curvature: float,
  minimiser: float,
  clipping_norm: float,
  local_steps: float,
  client_learning_rate: float,
) -> np.ndarray:
  """f'_i(x), whose gradient is clip(Λ_i ∇f_i(x), c), for a client on a line.

  With w = Λ_i h_i and r = |x − m_i|: w r²/2 where w r <= c, else c r − c²/(2w).

  Departs from the paper: its second case, c |Λ_i/A_i f_i(x)| − c²/2, is
  quadratic in x, so that its gradient is not c, and it does not meet the first
  case at w r = c. Written with the paper's symbols, the second case must be
  c |(A_i x − b_i) / A_i| − c² / (2 Λ_i A_i²), as here.

  Args:
    x: Where, any shape.
    curvature: h_i = A_i² > 0.
    minimiser: m_i = b_i / A_i.
    clipping_norm: c.
    local_steps: Q, or `math.inf`.
    client_learning_rate: η_l.

  Returns:
    The loss at each x, 0 at the minimiser.

  Source: eq. (7).
  """
  argument_checks.check_positive('clipping_norm', clipping_norm)
  clients = ScalarClients((float(curvature),), (float(minimiser),))
  (weight,) = _weights(clients, local_steps, client_learning_rate)
  distance = np.abs(np.asarray(x, float) - minimiser)
  return np.where(
    weight * distance <= clipping_norm,
    0.5 * weight * distance**2,
    clipping_norm * distance - 0.5 * clipping_norm**2 / weight,
  )


def preserving_learning_rate(
  problem: quadratics.LinearRegression, clipping_norm: float
) -> float:
  """An η_l with which one local step and difference clipping keep x*.

  min(c / (2 max_i ||∇f_i(x*)||), N / ||Σ_i H_i||), with Q = 1. The first term
  leaves all updates unclipped around x*, where their sum is η_l ∇f(x*) = 0; the
  second makes these rounds of gradient descent contract.

  Departs from the paper: its η_l = 1 / max_i ||∇f_i(x*)|| has no c in it, so
  that it is right for c >= 1 only, and nothing against divergence. With the
  rate that is returned here, x* is a point of rest that attracts its
  neighbourhood, and on a line, where the clipped losses are convex, everything.
  In more dimensions the clipped updates are no gradient, and a round with this
  rate can lead away from x*. docs/theory.md has a smaller rate with which the
  rounds lead to x* from anywhere.

  Args:
    problem: The clients' losses.
    clipping_norm: c.

  Source: proof of Claim 2.2.
  """
  argument_checks.check_positive('clipping_norm', clipping_norm)
  gradients = problem.gradients(problem.minimiser())
  largest = float(np.max(np.linalg.norm(gradients, axis=1)))
  curvature = float(np.linalg.norm(problem.hessians.sum(axis=0), 2))
  if curvature == 0.0:
    raise ValueError('`problem` must not be constant, found all A_i zero.')
  stable = problem.num_clients / curvature
  return min(0.5 * clipping_norm / largest, stable) if largest else stable


def balancing_learning_rates(
  clients: ScalarClients, *, local_steps: int, common_rate: float
) -> tuple[float, ...]:
  """An η_l for each client with which all Λ_i are one η, and x* is kept.

  η_i = (1 − (1 − η h_i)^(1/Q)) / h_i solves 1 − (1 − η_i h_i)^Q = η h_i. The
  updates are then −η ∇f_i(x), as if each client took one step, and sum to 0 at
  x*: without clipping, and with it if c >= η max_i |f_i'(x*)|.

  It is for clients on a line. In more dimensions Λ_i is a matrix, and no choice
  of step sizes makes matrices with different eigenvectors equal for Q > 1.

  Args:
    clients: The clients' losses.
    local_steps: Q.
    common_rate: η, positive and at most 1 / max h_i.

  Source: Remark 1.
  """
  argument_checks.check_integer('local_steps', local_steps, at_least=1)
  argument_checks.check_positive('common_rate', common_rate)
  limit = 1 / max(clients.curvatures)
  # As floats: 0.2 is more than the fraction 1/5.
  if float(common_rate) > float(limit):
    raise ValueError(
      f'`common_rate` must be at most {limit}, found {common_rate}.'
    )
  return tuple(
    float((1 - (1 - common_rate * h) ** (1 / local_steps)) / h)
    for h in clients.curvatures
  )


def _find_zeros(
  weights: list[Fraction], minimisers: list[Fraction], clipping_norm: Fraction
) -> tuple[Fraction, Fraction]:
  """The ends of all x with Σ_i clip(w_i (x − m_i), c) = 0."""

  def clipped(x: Fraction) -> Fraction:
    return Fraction(
      sum(
        max(-clipping_norm, min(clipping_norm, w * (x - m)))
        for w, m in zip(weights, minimisers, strict=True)
      )
    )

  corners = sorted(
    m + sign * clipping_norm / w
    for w, m in zip(weights, minimisers, strict=True)
    for sign in (-1, 1)
  )
  # Between two corners the sum is a straight line; it is negative at the first
  # corner and positive at the last, as all clients are clipped beyond them.
  values = [clipped(corner) for corner in corners]
  zeros: list[Fraction] = []
  for left, right, low, high in zip(
    corners[:-1], corners[1:], values[:-1], values[1:], strict=True
  ):
    if low <= 0 <= high:
      if low == high:
        zeros += [left, right]
      else:
        zeros.append(left - low * (right - left) / (high - low))
  return min(zeros), max(zeros)


def _to_fraction(value: Number) -> Fraction:
  """The exact value of a number."""
  is_rational = isinstance(value, Rational)
  return Fraction(value) if is_rational else Fraction(float(value))


def _weights(
  clients: ScalarClients, local_steps: float, client_learning_rate: Number
) -> list[Number]:
  """w_i = 1 − (1 − η_l h_i)^Q, each positive."""
  if local_steps != math.inf:
    argument_checks.check_integer('local_steps', local_steps, at_least=1)
  argument_checks.check_positive('client_learning_rate', client_learning_rate)
  for curvature in clients.curvatures:
    argument_checks.check_positive('curvatures', curvature)
  largest = max(clients.curvatures)
  odd = not math.isinf(local_steps) and local_steps % 2 == 1
  if not odd and client_learning_rate * largest >= 2:
    raise ValueError(
      f'`client_learning_rate` must be below 2 / {largest} for '
      f'{local_steps} local steps, found {client_learning_rate}.'
    )
  if math.isinf(local_steps):
    return [h / h for h in clients.curvatures]
  return [
    1 - (1 - client_learning_rate * h) ** local_steps
    for h in clients.curvatures
  ]


def main() -> None:
  """Prints Table 1: `python -m tff_clipping.theory.claims`."""
  cells = table_1()
  print('Table 1: stationary points (x* = 0)')
  print(f'{"":10}{"Q = 1":>10}{"Q = inf":>10}')
  for norm, name in ((math.inf, 'c = inf'), (1, 'c = 1')):
    values = ''.join(f'{cells[norm, q]!s:>10}' for q in (1, math.inf))
    print(f'{name:10}{values}')


if __name__ == '__main__':
  main()
