"""Checks of a process, by its types, before a ledger charges for it.

The record of the mechanism says what the aggregator does; see `records`. These
checks cover what a record cannot say.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow_federated as tff
import tree

from tff_clipping.learning.fed_avg_round import ClientWorkState
from tff_clipping.privacy import BasePlan
from tff_clipping.programs.clients import client_states

# Scalars that the optimizers of TFF keep, and that no round changes.
_HPARAMS = (
  *('learning_rate', 'momentum', 'decay', 'weight_decay'),
  *('beta_1', 'beta_2', 'epsilon'),
)
# Under these, what a client keeps costs nothing: the cohorts are public, or
# each client joins by coins that no other client's depend on.
_SAMPLINGS_TO_KEEP_UNDER = ('poisson', 'none', 'min_separation')


def check_process(
  process: tff.learning.templates.LearningProcess, plan: BasePlan
) -> None:
  """Raises if a process keeps something that a plan does not charge for.

  Warns of variables that no client trains, unless the process is one of
  `tff_clipping.learning`: such variables are not part of an update.

  Args:
    process: The process.
    plan: The plan that is charged.

  Raises:
    TypeError: If `process` is no process.
    ValueError: If its clients' work keeps a second aggregate of the clients,
      such as the mean gradient of Mime; or if its clients keep something
      themselves, and the plan's cohorts are drawn so that this costs more.
  """
  if not hasattr(process, 'state_type'):
    raise TypeError(
      '`process` must be a `tff.learning.templates.LearningProcess`, found '
      f'{type(process).__name__}.'
    )
  state = process.state_type.member
  work = getattr(state, 'client_work', None)
  # Ours keeps a model that was released, and what it makes of releases.
  is_ours = getattr(work, 'python_container', None) is ClientWorkState
  kept_at_server = () if is_ours else _fields(work)
  if not all(_may_be_public(name, kept) for name, kept in kept_at_server):
    raise ValueError(
      "`process` must keep no second aggregate of the clients' data, for which "
      "the plan does not charge, found the state of the clients' work "
      f'{work}: whether its numbers come from clients, no type tells. '
      'Constants belong into the computation, not into the state.'
    )
  if client_states.kept_type(process) is not None:
    check_keeping(plan)
  if not is_ours:  # Ours refuses a model whose steps would change them.
    _warn_of_untrained(state)


def check_keeping(plan: BasePlan) -> None:
  """Raises a ValueError if no client may keep something under a plan.

  What a client keeps tells in which rounds it took part, and so may what it
  sends. Where each client joins by coins of its own, they are coins of one
  client: a mixture of what the plan charges for costs no more, as
  `privacy_loss` proves. In a cohort of a fixed size one comes in place of
  another, who then sends something else in later rounds: no proof of
  amplification covers that.
  """
  if plan.sampling not in _SAMPLINGS_TO_KEEP_UNDER:
    raise ValueError(
      '`process` must have clients that keep nothing from round to round where '
      f'the sampling is {plan.sampling}, found some that do: what they send '
      'tells who took part in earlier rounds, and no amplification by that '
      'sampling is proved then. Take poisson, or cohorts that are public.'
    )


def take_id(client_id: str) -> str:
  """Returns the id: a process with a client store takes the client's id."""
  return client_id


def check_client_value(
  process: Any, client_value: Callable[[str], Any]
) -> None:
  """Raises a TypeError if a process that takes data would be given ids.

  A process without types is not looked at.
  """
  signature = getattr(getattr(process, 'next', None), 'type_signature', None)
  if client_value is not take_id or signature is None:
    return
  client = signature.parameter[1].member
  client = getattr(client, 'client', client)
  if not isinstance(client, tff.TensorType) or client.dtype.type is not np.str_:
    raise TypeError(
      '`client_value` must be given for a process that takes the data of its '
      f'clients, {client}, found none: a function that returns the data of a '
      'client by its id. A process with a `client_store` takes the ids.'
    )


def is_own(state: Any) -> bool:
  """Returns whether a state is of a process of `tff_clipping.learning`."""
  return isinstance(getattr(state, 'client_work', None), ClientWorkState)


def check_round(before: Any, after: Any) -> None:
  """Raises if a round changed more of a state than the plan charges for.

  The untrained variables of the model and the hyperparameters of the clients'
  work stay as they were, and integers of the work count the rounds: all else
  could be an exact figure of the clients.

  Args:
    before: The state of a learning process before the round.
    after: Its state after the round.

  Raises:
    ValueError: If the state has something else.
  """
  for (path, old), (_, new) in zip(
    _constants(before), _constants(after), strict=True
  ):
    is_counter = path[0] == 'client_work' and old.dtype.kind in 'iu'
    expected = old + 1 if is_counter else old
    if not np.array_equal(expected, new, equal_nan=old.dtype.kind == 'f'):
      raise ValueError(
        '`process` must leave the untrained variables of its model, and the '
        "constants of the clients' work, as they were: no plan charges for a "
        f'change of them, found one of {"/".join(map(str, path))}. '
        'The round is not released, and nothing is charged.'
      )


def _constants(state: Any) -> Iterator[tuple[tuple, np.ndarray]]:
  """Yields what `check_round` compares in a state, with its path."""
  model = getattr(state, 'global_model_weights', None)
  work = getattr(state, 'client_work', ())
  if isinstance(work, ClientWorkState):
    work = work.round_num
  untrained = getattr(model, 'non_trainable', ())
  kept = {'client_work': work, 'non_trainable': untrained}
  for path, leaf in tree.flatten_with_path(kept):
    yield path, np.asarray(leaf)


def _warn_of_untrained(state: tff.Type) -> None:
  model = getattr(state, 'global_model_weights', None)
  variables = list(_fields(getattr(model, 'non_trainable', None)))
  if variables:
    warnings.warn(
      f'`process` has a model with {len(variables)} variables that no client '
      'trains. Those of frozen layers stay as they are; but the statistics of '
      'batch norm stay what they are at first, and the model is evaluated with '
      'these: use group norm.',
      stacklevel=4,
    )


def _may_be_public(name: str, kept: tff.Type) -> bool:
  """Returns whether a field of a state is a scalar that counts or stays.

  `check_round` finds out whether it does.
  """
  if not isinstance(kept, tff.TensorType) or kept.shape != ():
    return False
  return np.issubdtype(kept.dtype, np.integer) or name in _HPARAMS


def _fields(
  kept: tff.Type | None, name: str = ''
) -> Iterator[tuple[str, tff.Type]]:
  """Yields the tensors of a state, with the innermost name of each."""
  if isinstance(kept, tff.StructType):
    for inner, element in tff.structure.iter_elements(kept):
      yield from _fields(element, inner or '')
  elif kept is not None:
    yield name, kept
