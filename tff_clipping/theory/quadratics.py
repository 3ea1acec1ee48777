r"""FedAvg with clipping on quadratic problems of any dimension.

N clients have the losses f_i(x) = 1/2 ||A_i x - b_i||^2, and the objective is
their sum, as in the paper's eq. (1); its minimiser is that of the mean, which
Theorem 1 works with. Every client takes part in every round, with exact
gradients. Each round is here twice: `local_models` takes the Q steps one by
one, and `local_operators` has their effect in closed form.

Source: Sec. 2.1.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from tff_clipping import argument_checks


@dataclasses.dataclass(frozen=True, eq=False)
class LinearRegression:
  """One linear regression a client: f_i(x) = 1/2 ||A_i x - b_i||^2.

  Attributes:
    matrices: A_i of each client, [rows_i, d].
    targets: b_i of each client, [rows_i].
  """

  matrices: Sequence[np.ndarray]
  targets: Sequence[np.ndarray]

  def __post_init__(self):
    if not self.matrices or len(self.matrices) != len(self.targets):
      raise ValueError(
        '`targets` must hold one vector for each of at least one matrix, found '
        f'{len(self.targets)} for {len(self.matrices)}.'
      )
    matrices = tuple(np.atleast_2d(np.asarray(a, float)) for a in self.matrices)
    targets = tuple(np.atleast_1d(np.asarray(b, float)) for b in self.targets)
    for matrix, target in zip(matrices, targets, strict=True):
      if matrix.shape != (len(target), matrices[0].shape[1]):
        raise ValueError(
          '`matrices` must be [rows, d] with as many rows as targets, found '
          f'{matrix.shape} for {len(target)} targets.'
        )
      if not (np.isfinite(matrix).all() and np.isfinite(target).all()):
        raise ValueError('`matrices` and `targets` must be finite, found not.')
    object.__setattr__(self, 'matrices', matrices)
    object.__setattr__(self, 'targets', targets)

  @property
  def num_clients(self) -> int:
    """N."""
    return len(self.matrices)

  @property
  def dimension(self) -> int:
    """d, the length of x."""
    return self.matrices[0].shape[1]

  @property
  def hessians(self) -> np.ndarray:
    """H_i = A_i^T A_i of each client, [N, d, d]."""
    return np.stack([a.T @ a for a in self.matrices])

  def loss(self, x: ArrayLike) -> float:
    """f(x), the sum of the clients' losses."""
    x = self._point(x)
    return 0.5 * sum(
      float(np.sum((a @ x - b) ** 2))
      for a, b in zip(self.matrices, self.targets, strict=True)
    )

  def gradients(self, x: ArrayLike) -> np.ndarray:
    """Gradient of each client's loss, [N, d], all at one point x, [d]."""
    x = self._point(x)
    return np.stack(
      [
        a.T @ (a @ x - b)
        for a, b in zip(self.matrices, self.targets, strict=True)
      ]
    )

  def minimiser(self) -> np.ndarray:
    """x*, [d]: the minimiser of f; of several, the one of least norm."""
    stacked = np.concatenate(self.matrices), np.concatenate(self.targets)
    return np.linalg.lstsq(*stacked, rcond=None)[0]

  def _point(self, x: ArrayLike) -> np.ndarray:
    point = np.atleast_1d(np.asarray(x, float))
    if point.shape != (self.dimension,):
      raise ValueError(
        f'`x` must have the shape ({self.dimension},), found {point.shape}.'
      )
    return point


def clip(vectors: np.ndarray, clipping_norm: float) -> np.ndarray:
  """Clips each row: v * min(1, c / ||v||).

  Args:
    vectors: [..., d].
    clipping_norm: c, positive; `math.inf` leaves everything as it is.

  Returns:
    [..., d]. A zero stays zero.

  Source: eq. (3).
  """
  argument_checks.check_positive('clipping_norm', clipping_norm, allow_inf=True)
  norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
  if math.isinf(clipping_norm):
    return np.array(vectors)
  return vectors * (clipping_norm / np.maximum(norms, clipping_norm))


def local_models(
  problem: LinearRegression,
  x: ArrayLike,
  *,
  local_steps: int,
  client_learning_rate: float,
) -> np.ndarray:
  """x_i^Q, [N, d]: the clients' models after Q gradient steps from x.

  A step is x_i ← x_i − η_l ∇f_i(x_i).

  Args:
    problem: The clients' losses.
    x: [d], the global model.
    local_steps: Q, finite: `local_operators` knows the limit.
    client_learning_rate: η_l.

  Source: Algorithm 1.
  """
  _check_local(local_steps, client_learning_rate)
  models = np.tile(problem._point(x), (problem.num_clients, 1))
  hessians = problem.hessians
  linear = problem.gradients(np.zeros(problem.dimension))
  for _ in range(local_steps):
    gradients = np.einsum('nij,nj->ni', hessians, models) + linear
    models = models - client_learning_rate * gradients
  return models


def local_operators(
  problem: LinearRegression,
  *,
  local_steps: float,
  client_learning_rate: float,
) -> np.ndarray:
  """Λ_i = (I − (I − η_l H_i)^Q) H_i⁻¹, so that x_i^Q − x = −Λ_i ∇f_i(x).

  It is written with the eigenvalues of H_i, so that a singular H_i, which the
  paper's formula excludes, has its Λ_i too: η_l Σ_q (I − η_l H_i)^q.

  Args:
    problem: The clients' losses.
    local_steps: Q, or `math.inf` for the limit, which exists when every
      non-zero eigenvalue h of every H_i has η_l h < 2. There Λ_i is the
      pseudo-inverse of H_i: gradients have no part in its null space.
    client_learning_rate: η_l.

  Returns:
    [N, d, d].

  Raises:
    ValueError: Q is infinite and the local steps diverge.

  Source: proof of Claim 2.2.
  """
  _check_local(local_steps, client_learning_rate, allow_inf=True)
  eigenvalues, vectors = np.linalg.eigh(problem.hessians)
  tolerance = 1e-12 * max(float(np.max(eigenvalues)), 1e-300)
  is_zero = eigenvalues <= tolerance
  safe = np.where(is_zero, 1.0, eigenvalues)
  if math.isinf(local_steps):
    if client_learning_rate * np.max(eigenvalues) >= 2.0:
      raise ValueError(
        '`client_learning_rate` must be below '
        f'{2.0 / np.max(eigenvalues):.6g} for infinitely many local steps, '
        f'found {client_learning_rate}.'
      )
    scales = np.where(is_zero, 0.0, 1.0 / safe)
  else:
    contracted = (1.0 - client_learning_rate * safe) ** local_steps
    scales = np.where(
      is_zero, client_learning_rate * local_steps, (1.0 - contracted) / safe
    )
  return np.einsum('nij,nj,nkj->nik', vectors, scales, vectors)


def difference_clipping_step(
  problem: LinearRegression,
  x: ArrayLike,
  *,
  clipping_norm: float = math.inf,
  local_steps: int,
  client_learning_rate: float,
  server_learning_rate: float = 1.0,
) -> np.ndarray:
  """x⁺ = x + η_g/N Σ_i clip(x_i^Q − x, c), [d]: one round of CE-FedAvg.

  With the default norm, infinity, it is a round of FedAvg.

  Args:
    problem: The clients' losses.
    x: [d], the global model.
    clipping_norm: c, or `math.inf`.
    local_steps: Q.
    client_learning_rate: η_l.
    server_learning_rate: η_g.

  Source: eq. (4), Algorithm CE-FedAvg.
  """
  argument_checks.check_positive('server_learning_rate', server_learning_rate)
  x = problem._point(x)
  models = local_models(
    problem,
    x,
    local_steps=local_steps,
    client_learning_rate=client_learning_rate,
  )
  clipped = clip(models - x, clipping_norm)
  return x + server_learning_rate * clipped.mean(axis=0)


def model_clipping_step(
  problem: LinearRegression,
  x: ArrayLike,
  *,
  clipping_norm: float,
  local_steps: int,
  client_learning_rate: float,
) -> np.ndarray:
  """x⁺ = 1/N Σ_i clip(x_i^Q, c), [d]: one round with clipped models.

  Args: as for `difference_clipping_step`.

  Source: Sec. 2.1, 'Model clipping'.
  """
  models = local_models(
    problem,
    x,
    local_steps=local_steps,
    client_learning_rate=client_learning_rate,
  )
  return clip(models, clipping_norm).mean(axis=0)


def iterate(
  step: Callable[[np.ndarray], np.ndarray],
  x: ArrayLike,
  *,
  tolerance: float = 1e-12,
  max_rounds: int = 100_000,
) -> np.ndarray:
  """Repeats rounds until the model stands still.

  Args:
    step: One round, from model to model, [d].
    x: [d], the first model.
    tolerance: The rounds end when none of the coordinates moves by more than
      this times max(1, its size).
    max_rounds: The most rounds to try.

  Returns:
    [d], the last model.

  Raises:
    ValueError: It does not come to rest.
  """
  model = np.atleast_1d(np.asarray(x, float))
  for _ in range(max_rounds):
    following = step(model)
    if not np.isfinite(following).all():
      break
    moved = np.abs(following - model) / np.maximum(1.0, np.abs(following))
    if np.max(moved) <= tolerance:
      return following
    model = following
  raise ValueError(f'`step` must come to rest, found it moving at {model}.')


def clipped_sum(
  problem: LinearRegression,
  x: ArrayLike,
  *,
  clipping_norm: float,
  local_steps: float,
  client_learning_rate: float,
) -> np.ndarray:
  """Σ_i clip(Λ_i ∇f_i(x), c), [d]: zero where CE-FedAvg comes to rest.

  Args: as for `local_operators`, with the model x, [d], and the norm c.

  Source: proof of Claim 2.2.
  """
  operators = local_operators(
    problem, local_steps=local_steps, client_learning_rate=client_learning_rate
  )
  updates = np.einsum('nij,nj->ni', operators, problem.gradients(x))
  return clip(updates, clipping_norm).sum(axis=0)


def _check_local(
  local_steps: float, client_learning_rate: float, allow_inf: bool = False
) -> None:
  if not (allow_inf and local_steps == math.inf):
    argument_checks.check_integer('local_steps', local_steps, at_least=1)
  argument_checks.check_positive('client_learning_rate', client_learning_rate)
