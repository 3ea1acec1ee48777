r"""Clipped rounds whose clients keep something, on quadratic problems.

The paper names extensions of FedAvg, "mostly by modifying the local update
directions" (Sec. 1), SCAFFOLD and FedPD among them. A client of these keeps a
vector from round to round, as does one with error feedback. Here are the rounds
of the three with a clip on what a client sends.
Every client takes part in every round, with exact gradients, as in
`quadratics`.

The state of a run is one array, [1 + N, d]: first the global model x, then what
each client keeps. `quadratics.iterate` takes these rounds as its steps. Where
they come to rest has a closed form, `claims.extended_table_1`.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from tff_clipping import argument_checks
from tff_clipping.theory import quadratics
from tff_clipping.theory.quadratics import LinearRegression


def first_state(problem: LinearRegression, x: ArrayLike) -> np.ndarray:
  """The state before the first round, [1 + N, d]: all clients keep zeros.

  Args:
    problem: The clients' losses.
    x: [d], the first model.
  """
  model = problem._point(x)
  return np.vstack([model, np.zeros((problem.num_clients, problem.dimension))])


def error_feedback_step(
  problem: LinearRegression,
  state: np.ndarray,
  *,
  clipping_norm: float = math.inf,
  local_steps: int,
  client_learning_rate: float,
  server_learning_rate: float = 1.0,
) -> np.ndarray:
  """One round of clipped error feedback, [1 + N, d].

  A client keeps v_i, what the server has of its update so far, and sends the
  clipped rest of it. The server adds up all that it was sent, so it has v_i⁺:

      v_i⁺ = v_i + clip(Δ_i − v_i, c),   x⁺ = x + η_g/N Σ_i v_i⁺.

  At rest v_i = Δ_i: nothing is clipped, and the model rests where FedAvg's
  does.

  Args:
    problem: The clients' losses.
    state: [1 + N, d], the global model and each v_i.
    clipping_norm: c, or `math.inf`.
    local_steps: Q.
    client_learning_rate: η_l.
    server_learning_rate: η_g.

  Source: Khirirat et al. 2023 (Clip21, arXiv 2305.18929), with the update Δ_i
    of Q local steps in place of a gradient.
  """
  argument_checks.check_positive('server_learning_rate', server_learning_rate)
  model, sent_before = _split(problem, state)
  models = quadratics.local_models(
    problem,
    model,
    local_steps=local_steps,
    client_learning_rate=client_learning_rate,
  )
  sent = sent_before + quadratics.clip(
    models - model - sent_before, clipping_norm
  )
  return np.vstack([model + server_learning_rate * sent.mean(axis=0), sent])


def fed_pd_step(
  problem: LinearRegression,
  state: np.ndarray,
  *,
  clipping_norm: float = math.inf,
  local_steps: int,
  client_learning_rate: float,
  penalty: float,
) -> np.ndarray:
  """One round of FedPD whose clients clip what they send, [1 + N, d].

  A client keeps a dual vector λ_i. Its Q local steps go down its part of the
  augmented Lagrangian, f_i(y) + ⟨λ_i, y − x⟩ + ‖y − x‖²/(2η), from x to x_i:

      λ_i⁺ = λ_i + (x_i − x)/η,   x⁺ = x + 1/N Σ_i clip(x_i + η λ_i⁺ − x, c).

  At rest x_i = x and λ_i = −∇f_i(x), for every Q, so that each client sends
  clip(−η ∇f_i(x), c): the model rests where CE-FedAvg's does with Q = 1 and η
  in place of η_l.

  Departs from its source: the local steps start at the global model, and not at
  the client's last one.

  Args:
    problem: The clients' losses.
    state: [1 + N, d], the global model and each λ_i.
    clipping_norm: c, or `math.inf`.
    local_steps: Q.
    client_learning_rate: η_l.
    penalty: η, the inverse weight of the penalty in the Lagrangian.

  Source: Zhang, Hong, Dhople, Yin, Liu 2020 (arXiv 2005.11418), Algorithm 1
    with Oracle I.
  """
  argument_checks.check_positive('penalty', penalty)
  model, duals = _split(problem, state)
  models = quadratics.local_models(
    problem,
    model,
    local_steps=local_steps,
    client_learning_rate=client_learning_rate,
    shifts=duals,
    proximal_weight=1.0 / penalty,
  )
  duals = duals + (models - model) / penalty
  sent = quadratics.clip(models + penalty * duals - model, clipping_norm)
  return np.vstack([model + sent.mean(axis=0), duals])


def scaffold_step(
  problem: LinearRegression,
  state: np.ndarray,
  *,
  clipping_norm: float = math.inf,
  local_steps: int,
  client_learning_rate: float,
  server_learning_rate: float = 1.0,
) -> np.ndarray:
  """One round of SCAFFOLD whose controls come from clipped updates, [1 + N, d].

  A client keeps a control c_i, and the server knows their mean c. The Q local
  steps go along ∇f_i(y) − c_i + c, and the controls follow what is sent, the
  clipped update:

      c_i⁺ = c_i − c − clip(Δ_i, C)/(Q η_l),   x⁺ = x + η_g/N Σ_i clip(Δ_i, C).

  So the mean of the controls is −(x⁺ − x)/(η_g Q η_l), which the server has
  from the release, and no control is sent. At rest that is 0, hence
  clip(Δ_i, C) = 0 and ∇f_i(x) = c_i for all i: the sum of the gradients is
  0, for every C, Q and η_l.

  Departs from its source: the controls take the clipped updates, not the
  updates themselves, and the clients do not send their controls.

  Args:
    problem: The clients' losses.
    state: [1 + N, d], the global model and each c_i.
    clipping_norm: C, or `math.inf`.
    local_steps: Q.
    client_learning_rate: η_l.
    server_learning_rate: η_g.

  Source: Karimireddy et al. 2020 (arXiv 1910.06378), Algorithm 1, option II.
  """
  argument_checks.check_positive('server_learning_rate', server_learning_rate)
  model, controls = _split(problem, state)
  mean = controls.mean(axis=0)
  models = quadratics.local_models(
    problem,
    model,
    local_steps=local_steps,
    client_learning_rate=client_learning_rate,
    shifts=mean - controls,
  )
  sent = quadratics.clip(models - model, clipping_norm)
  controls = controls - mean - sent / (local_steps * client_learning_rate)
  return np.vstack([model + server_learning_rate * sent.mean(axis=0), controls])


def _split(
  problem: LinearRegression, state: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """The global model, [d], and what the clients keep, [N, d]."""
  expected = (1 + problem.num_clients, problem.dimension)
  if np.shape(state) != expected:
    raise ValueError(
      f'`state` must have the shape {expected}, as `first_state` returns it, '
      f'found {np.shape(state)}.'
    )
  return state[0], state[1:]
