"""What a process must be like for a ledger to charge for what it releases.

Seen from its types alone, which tell what it is made of. How much noise it
adds, `noise_checks` finds in the numbers of each round.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_clipping.aggregators.parts import (
  composition_rules,
  grid_sums,
  inspect_process,
)
from tff_clipping.privacy import (
  BasePlan,
  CorrelatedNoisePlan,
)
from tff_clipping.programs.checks import noise_checks
from tff_clipping.programs.clients import client_states

# Of the clients' work, what the processes of `tff_clipping.learning`, and no
# others, keep to measure angles: a model that was released. And what they share
# with clients that keep something, made of what was released.
_RELEASED = 'previous_model'
_MADE_OF_RELEASES = 'made_of_releases'
# Under these, what a client keeps costs nothing: the cohorts are public, or
# each client joins by coins that no other client's depend on.
_SAMPLINGS_TO_KEEP_UNDER = (
  'poisson',
  'none',
  'min_separation',
  'shuffled_epochs',
)


def check_process(
  process: tff.learning.templates.LearningProcess, plan: BasePlan
) -> None:
  """Raises if a plan does not charge for what a process releases.

  Warns of variables that no client trains, unless the process is one of
  `tff_clipping.learning`: they are no part of an update.

  Args:
    process: The process.
    plan: The plan that is charged.

  Raises:
    TypeError: If `process` is no process.
    ValueError: If the aggregator of the process adds no noise, or noise of
      another kind than the plan's, or in shares for cohorts that have no
      bounds, or that of TFF's factory, whose tails end; if it has no clip,
      divides by the clients that took part, or adapts a norm that no noise
      covers; if its clients' work keeps a second aggregate of the clients,
      such as the mean gradient of Mime; if its clients keep something
      themselves, and the plan's cohorts are drawn so that this costs more; or
      if the plan's noise multiplier is above 32, and rounding is paid for up to
      there.
  """
  if not hasattr(process, 'state_type'):
    raise TypeError(
      '`process` must be a `tff.learning.templates.LearningProcess`, found '
      f'{type(process).__name__}.'
    )
  state = process.state_type.member
  # What noises something else than the updates is no noise of the plan's.
  aggregate = getattr(state, 'aggregator', state)
  if not inspect_process.adds_noise(aggregate):
    raise ValueError(
      '`process` must add noise where a ledger is charged, found the state '
      f'{aggregate}. It has the state of no factory of ours or of TFF that '
      'does; one of your own has a field `privacy_noise`: empty where the '
      'noise is fresh in each round, and else with a `draw`, or with `slots` '
      'where it is correlated between rounds.'
    )
  if inspect_process.divides_by_cohort(aggregate, _measurements(process)):
    raise ValueError(
      '`process` must divide by a public number where a ledger is charged, '
      f'found a mean over the clients that took part, in the state {aggregate} '
      'or in what it measures: the noise on it tells their number, and so does '
      'a sum of weights. Use `fixed_denominator_mean_factory`, or '
      '`dp_mean_factory`, in an unweighted algorithm.'
    )
  if not inspect_process.clips(aggregate):
    raise ValueError(
      '`process` must clip what a client sends where a ledger is charged, '
      f'found the state {aggregate}, which is that of no clip of ours or of '
      'TFF; one of your own has a field `clipping_norm`, empty where it is a '
      'constant.'
    )
  composition_rules.check_norms_are_charged('process', aggregate)
  composition_rules.check_their_clip(
    {name for name, _ in inspect_process.named_types(aggregate)},
    [
      kept.dtype.type
      for part in (state, process.next.type_signature.parameter[1].member)
      for kept in _tensors(part)
    ],
  )
  is_correlated = inspect_process.correlates_noise(aggregate)
  if is_correlated and isinstance(plan, CorrelatedNoisePlan):
    _check_strategy(aggregate, plan)
  elif is_correlated or isinstance(plan, CorrelatedNoisePlan):
    raise ValueError(
      "`process` must have the plan's kind of noise, found noise that is "
      f'{"" if is_correlated else "not "}correlated between rounds, and a '
      f'{type(plan).__name__}.'
    )
  measured = {
    name for name, _ in inspect_process.named_types(_measurements(process))
  }
  _check_rounding(aggregate, plan)
  if noise_checks.SHARE in measured:
    noise_checks.share_parameters(plan)
  _check_work(getattr(state, 'client_work', None))
  _check_kept(process, plan)
  # Last, as what is wrong with a pipeline of theirs besides says more.
  if inspect_process.takes_their_noise(aggregate):
    raise ValueError(f'`process` must {composition_rules.TAILS}')
  _warn_of_untrained(state)


def _warn_of_untrained(state: tff.Type) -> None:
  work = getattr(state, 'client_work', None)
  if work is not None and hasattr(work, _RELEASED):
    # It refuses a model whose steps would change them.
    return
  model = getattr(state, 'global_model_weights', None)
  variables = list(_tensors(getattr(model, 'non_trainable', tff.to_type([]))))
  if variables:
    warnings.warn(
      f'`process` has a model with {len(variables)} variables that no client '
      'trains. Those of frozen layers stay as they are; but the statistics of '
      'batch norm stay what they are at first, and the model is evaluated with '
      'these: use group norm.',
      stacklevel=4,
    )


def _measurements(process: tff.templates.IterativeProcess) -> tff.Type:
  """Returns the type of what the aggregator of a process measures."""
  result = process.next.type_signature.result
  if not hasattr(result, 'metrics'):
    return result.measurements  # An aggregation process.
  metrics = result.metrics.member
  return getattr(metrics, 'aggregator', metrics)


def _check_strategy(aggregate: tff.Type, plan: CorrelatedNoisePlan) -> None:
  """Raises if the state of the noise is that of another strategy."""
  expected = plan.strategy.recurrence.read_weights.shape[1]
  for name, kept in inspect_process.named_types(aggregate):
    if name == inspect_process.TREE:
      raise ValueError(
        "`process` must have the noise of the plan's strategy, as "
        "`correlated_noise_factory` adds it, found TFF's tree."
      )
    found = {t.shape[0] for t in _tensors(kept) if t.shape}
    if name == inspect_process.SLOTS and found - {expected}:
      raise ValueError(
        "`process` must have the noise of the plan's strategy, which keeps "
        f'{expected} earlier noises, found one that keeps {found.pop()}.'
      )


def _check_rounding(aggregate: tff.Type, plan: BasePlan) -> None:
  """Raises if rounding to the grid costs more than the noise pays for."""
  largest = grid_sums.PAID_MULTIPLIER
  if plan.noise_multiplier > largest and inspect_process.clips_inside_noise(
    aggregate
  ):
    raise ValueError(
      '`process` must clip outside of its noise for a plan whose noise '
      f'multiplier is above {largest:g}, found {plan.noise_multiplier:g}: sums '
      'of a clip inside are rounded, and the noise pays for it up to there.'
    )
  if not isinstance(plan, CorrelatedNoisePlan):
    return
  of_mechanism = plan.noise_multiplier / plan.sensitivity
  is_kept = plan.strategy.recurrence.read_weights.shape[1] > 0
  if is_kept and of_mechanism > largest:
    raise ValueError(
      '`plan` must have a noise multiplier of at most '
      f'{largest:g} times the sensitivity of its strategy, found '
      f'{of_mechanism:g} times: what is kept of the noise is rounded, and the '
      'noise pays for it up to there.'
    )


def _check_work(work: tff.Type | None) -> None:
  """Raises if the state of the clients' work may hold data of clients."""
  # Numbers are learning rates and rounds.
  arrays = [
    str(kept)
    for kept in _tensors(work)
    if np.issubdtype(kept.dtype, np.floating) and len(kept.shape)
  ]
  if arrays or (work is not None and inspect_process.adds_noise(work)):
    raise ValueError(
      "`process` must keep no second aggregate of the clients' data, for which "
      "the plan does not charge, found the state of the clients' work "
      f'{work}: whether its arrays come from clients, no type tells. Constants '
      'belong into the computation, not into the state.'
    )


def _check_kept(process: Any, plan: BasePlan) -> None:
  """Raises if clients keep something, and the plan does not charge for it.

  What a client keeps tells in which rounds it took part, and so may what it
  sends. Where each client joins by coins of its own, they are coins of one
  client: a mixture of what the plan charges for costs no more, as
  `privacy_loss` proves. In a cohort of a fixed size one comes in place of
  another, who then sends something else in later rounds: no proof of
  amplification covers that.
  """
  keeps = client_states.kept_type(process) is not None
  if keeps and plan.sampling not in _SAMPLINGS_TO_KEEP_UNDER:
    raise ValueError(
      '`process` must have clients that keep nothing from round to round where '
      f'the sampling is {plan.sampling}, found some that do: what they send '
      'tells who took part in earlier rounds, and no amplification by that '
      'sampling is proved then. Take poisson, or cohorts that are public.'
    )


def _tensors(kept: tff.Type | None) -> Iterator[tff.TensorType]:
  """Yields the tensors of a state, but for what comes from releases."""
  if isinstance(kept, tff.TensorType):
    yield kept
  elif isinstance(kept, tff.StructType):
    for name, element in tff.structure.iter_elements(kept):
      if name not in (_RELEASED, _MADE_OF_RELEASES):
        yield from _tensors(element)
