"""A round that is run again releases the same bits, or is a new release.

A program that is killed runs the rounds since its last checkpoint again. Under
subsampling, a second release of the same cohort with fresh noise is not a
second sample: k of them are one sampled Gaussian mechanism with noise
z / sqrt(k), whose cost is far above that of k independent draws. So a repeated
round must give the bits that were charged, which tell nobody anything new, or
it is drawn anew: another cohort, other noise, another charge.

Which of both it is must not depend on the clients' data, or it tells of them.
So it is decided by what was computed, and where: only where this is known to
give the same bits are they looked at.
"""

import contextlib
import hashlib
import logging
import operator
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff
import tree

from tff_clipping import aggregators, storage_errors
from tff_clipping.aggregators.parts import noise_keys
from tff_clipping.privacy.ledger.ledger import (
  ChangedReleaseError,
  PrivacyLedger,
)
from tff_clipping.programs.checks import cohort_checks, noise_checks
from tff_clipping.programs.clients.client_sampling import ClientSampler
from tff_clipping.programs.training import other_bits, process_metrics
from tff_clipping.runtime import environment

_LOGGER = logging.getLogger(__name__)

# What was looked at of the cohorts that a ledger charges for.
_COHORT_CHECKS: weakref.WeakKeyDictionary[
  PrivacyLedger, cohort_checks.CohortChecks
] = weakref.WeakKeyDictionary()

# The state after what a ledger has charged for last, its leaves and its digest.
_LAST_STATES: weakref.WeakKeyDictionary[
  PrivacyLedger, tuple[Any, Sequence[Any], str]
] = weakref.WeakKeyDictionary()

# Caveats.
GIVEN_NOISE = (
  'the seed of the noise was given, and whoever knows it can subtract the noise'
)
_OTHER_BITS = (
  'a round that was run again had other bits than those that were charged, and '
  'which round that is depends on the data of its clients'
)


def run_private_round(
  next_fn: Callable[[Any, Sequence[str]], Any],
  sampler: ClientSampler,
  ledger: PrivacyLedger,
  *,
  state: Any,
  round_num: int,
  shield: Callable[[], contextlib.AbstractContextManager] = (
    contextlib.nullcontext
  ),
) -> tuple[list[str], Any]:
  """Runs a round, and charges for its release before it returns it.

  The cohort, and the noise if it comes from a key in the state, are functions
  of the round and the number of its draw. A round that the ledger has is run
  with the draw that was charged last. If that is known to give the same bits,
  from the same state in the same `runtime.environment`, it is released at no
  cost. If it is not, as on another machine, with another model, or with noise
  that is fresh, what it gave is dropped unseen, and the round is run and
  charged with a draw of its own, if the plan allows that.

  Should it give other bits all the same, because the clients' data are others,
  say, the ledger takes up the caveat that the plan does not hold: that this
  round was not released again tells of the clients. It takes up another one if
  the noise comes from a key that was given. What `next_fn` does in Python, and
  what it gives to TFF beside the state, nothing here sees: it has to be the
  same again.

  Args:
    next_fn: Runs a state and the ids of a cohort; returns an output of a
      `tff.learning.templates.LearningProcess`, with `state` and `metrics`.
    sampler: Draws the cohorts: what `build_private_sampler` returns for the
      ledger's plan, or a sampler of your own with the same law that says so in
      its `charged_as`.
    ledger: What is charged.
    state: The state before the round: that of another round is refused where
      its noise comes from a key in the state.
    round_num: The number of the round, from 1.
    shield: Gives a context that holds back signals while the ledger is written.

  Returns:
    The cohort, which is secret, and the output. Of the output, the plan covers
    the model and, of what was measured, what `process_metrics.flatten_metrics`
    takes to be public: these may be released.

  Raises:
    TypeError: If `next_fn` is no function, or returns no values, such as the
      references of an asynchronous context. Nothing was charged.
    ValueError: If the sampler is not that of the ledger's plan, or draws what
      no such sampler would, the state is
      not the one before the round or is of another ledger, or the noise that
      was measured is less than the plan's; or if, under correlated noise or
      random allocation, a
      round is left out, or the cohorts are not those of the rounds before.
      Nothing was charged.
    ChangedReleaseError: If a repeated round gives other bits, or may give them,
      and no other draw would do: the plan has noise that is correlated between
      rounds, or clients that draw one round of an epoch, or the state keeps
      what the noise comes from, but no number of the draw.
    BudgetExhaustedError: If the release would pass the plan's target. The round
      may have been run; it must not be released.
    DamagedLedgerError: If the ledger is not as it was written.
    StorageError: If the state has the number of the round with its noise, and
      the ledger has no release of one before: it is that of another run.
    OSError: If the ledger could not be written.
  """
  if not callable(next_fn):
    raise TypeError(
      '`next_fn` must be a function of a state and a cohort, such as '
      f'`process.next`, found {type(next_fn).__name__}.'
    )
  check_sampler(sampler, ledger)
  if not ledger.plan.allows_new_draws:
    cohorts = getattr(sampler, 'digest', None)
    if cohorts is None:
      raise ValueError(
        '`sampler` must have the `digest` of what decides its cohorts, such as '
        'its seed and ids, where noise is correlated between rounds or clients '
        'draw one round of an epoch, found '
        f'none in {type(sampler).__name__}: other cohorts in the midst of a '
        'run would cost more than the plan charges for.'
      )
    with shield():
      ledger.check_cohorts(cohorts)
  noise_keys.check_next_round(state, round_num)
  if noise_keys.keeps_round(state):
    check_rounds(ledger, round_num - 1)
  noise_keys.check_ledger(state, ledger.run_id)
  if noise_keys.is_given(state):
    with shield():
      ledger.add_caveats([GIVEN_NOISE])
  # Whoever knows what was released knows whether it is the same again.
  before = _digest_of_state(state, ledger)[:16]
  seed = getattr(sampler, 'seed_digest', None)
  # Where no other draw would do, they are all that there is.
  data_sets_repeat = not ledger.plan.allows_new_draws
  draw = ledger.last_draw(round_num)
  is_again = draw is not None
  if draw is None:
    ledger.check_budget(round_num)
    draw = 0
  while True:
    cohort = sampler.sample(round_num, draw)
    _cohort_checks(sampler, ledger).check(round_num, cohort)
    drawn = aggregators.with_noise_draw(state, draw, ledger_id=ledger.run_id)
    with environment.recording() as computed:
      output = next_fn(drawn, cohort)
    where = environment.describe(computed, data_sets_repeat=data_sets_repeat)
    here = f'{where}, state {before}'
    _check_values(output)
    noise_checks.check_noise(state, output.metrics, ledger.plan)
    there = ledger.last_environment(round_num)
    if is_again and there != here:
      # Nobody looks at its bits.
      why = other_bits.explain(
        there, here, computed, data_sets_repeat=data_sets_repeat
      )
      reason = f'may give other bits ({why})'
    else:
      after = compute_digest(output.state)
      digest = compute_digest((after, _released_metrics(output.metrics)))
      try:
        with shield():
          if seed is not None:
            ledger.record_seed(seed)
          ledger.charge(round_num, digest, draw=draw, environment=here)
        leaves = tree.flatten(output.state)
        _LAST_STATES[ledger] = output.state, leaves, after
        return cohort, output
      except ChangedReleaseError:
        reason = 'gives other bits than those that were charged'
        with shield():
          ledger.add_caveats([_OTHER_BITS])
    _start_new_draw(ledger, state, round_num, reason)
    draw, is_again = draw + 1, False


def _digest_of_state(state: Any, ledger: PrivacyLedger) -> str:
  """Returns the digest of a state, which most often has just been computed."""
  last, leaves, digest = _LAST_STATES.get(ledger, (None, (), ''))
  found = tree.flatten(state)
  # A container may have been given other leaves.
  if (
    last is state
    and len(found) == len(leaves)
    and all(map(operator.is_, found, leaves))
    and all(map(_is_fixed, found))
  ):
    return digest
  return compute_digest(state)


def _is_fixed(leaf: Any) -> bool:
  """Returns whether nobody can change a leaf in place."""
  if isinstance(leaf, np.ndarray):
    return not leaf.flags.writeable
  return isinstance(leaf, (np.generic, bool, int, float, str, bytes))


def _cohort_checks(
  sampler: ClientSampler, ledger: PrivacyLedger
) -> cohort_checks.CohortChecks:
  """Returns what has looked at the cohorts of this sampler, or begins it."""
  checks = _COHORT_CHECKS.get(ledger)
  if checks is None or checks.sampler is not sampler:
    checks = cohort_checks.CohortChecks(sampler, ledger.plan)
    _COHORT_CHECKS[ledger] = checks
  return checks


def _start_new_draw(
  ledger: PrivacyLedger, state: Any, round_num: int, reason: str
) -> None:
  """Warns that a round is drawn anew, or raises if it cannot be.

  Args:
    ledger: What is charged.
    state: The state before the round.
    round_num: The number of the round, which was charged.
    reason: What follows the round in the message.
  """
  refused = f'Round {round_num}, run again, {reason}: it must not be released. '
  last_round = max(
    (each for each in ledger.rounds if each is not None), default=0
  )
  if not ledger.plan.allows_new_draws:
    raise ChangedReleaseError(
      f'{refused}Noise that is correlated between rounds, and the rounds of an '
      'epoch of random_allocation, cannot be drawn anew: the run ends with the '
      'model that was released last, unless it goes on where the round was '
      'charged, with the same data, or from the state '
      f'after round {last_round}, the last that was charged.'
    )
  if not noise_keys.takes_draws(state):
    raise ChangedReleaseError(
      f'{refused}Nor can it be drawn anew: the state of the noise, '
      '`privacy_noise`, has no `draw`, so that the next draw may have the same '
      'noise.'
    )
  ledger.check_budget(round_num)
  _LOGGER.warning(
    'Round %d, run again, %s: it is drawn anew, and charged again.',
    round_num,
    reason,
  )


def check_context() -> None:
  """Raises where TFF would say that this error should not be expected.

  Raises:
    RuntimeError: If this thread has no context of TFF.
  """
  current = type(tff.framework.get_context_stack().current)
  if current.__module__.endswith('runtime_error_context'):
    raise RuntimeError(
      'A program must run in a thread with a context of TFF, found none: call '
      '`tff_clipping.runtime.set_default_context()` in the thread that runs it.'
    )


def check_sampler(sampler: ClientSampler, ledger: PrivacyLedger) -> None:
  """Raises if a ledger does not charge for the cohorts of a sampler.

  Raises:
    ValueError: If the sampler is that of another plan, or of none.
  """
  expected = ledger.plan.sampler_parameters
  if sampler.charged_as != expected:
    raise ValueError(
      "`sampler` must be that of the ledger's plan, made by "
      f'`build_private_sampler`: {expected}; found {type(sampler).__name__} '
      f'for {sampler.charged_as or "no plan"}. A sampler of your own with the '
      'same law says so: `charged_as = plan.sampler_parameters`.'
    )


def check_rounds(ledger: PrivacyLedger, round_num: int) -> None:
  """Raises if a ledger lacks a round that a state has.

  Args:
    ledger: The ledger of the run.
    round_num: The number of rounds that the state has.

  Raises:
    StorageError: If one was not charged.
  """
  charged = ledger.rounds
  missing = set(range(1, round_num + 1)).difference(charged)
  # A line that was cut short may have been of any round.
  if len(missing) > charged.count(None):
    raise storage_errors.StorageError(
      f'The state is of round {round_num}, but the ledger has no release '
      f'of round {min(missing)} among its {len(charged)}: it is not the ledger '
      'of this run, and what was charged is not known. Restore it from a copy '
      'that is as new as the last release.'
    )


def _check_values(output: Any) -> None:
  """Raises if something in an output of a process is no value."""
  for path, leaf in tree.flatten_with_path((output.state, output.metrics)):
    if not _is_value(np.asarray(leaf)):
      raise TypeError(
        '`next_fn` must return values, found '
        f'{type(leaf).__name__} at {".".join(map(str, path[1:]))}: those of an '
        'asynchronous context are to be awaited first, by '
        '`tff.program.materialize_value`, or `PrivateProcess` is to have a '
        'synchronous `context`.'
      )


def _is_value(array: np.ndarray) -> bool:
  """Returns whether an array has numbers or strings, and no references."""
  return not array.dtype.hasobject or all(
    isinstance(element, (str, bytes)) for element in array.flat
  )


def _released_metrics(metrics: Any) -> Any:
  """Returns the metrics that may be released, for a digest.

  All but those of the clients' work and what the aggregator measured exactly,
  which never are: a digest of them could be searched for what they were.
  """
  if not isinstance(metrics, Mapping):
    return metrics
  return {
    name: process_metrics.flatten_metrics({name: measured}, is_private=True)
    if name == 'aggregator'
    else measured
    for name, measured in metrics.items()
    if name != 'client_work'
  }


def compute_digest(value: Any) -> str:
  """Returns the SHA-256 digest of a structure of arrays, in hexadecimal.

  Equal digests mean equal names, types, shapes and bits.

  Args:
    value: A structure of tensors, arrays, numbers and strings.

  Raises:
    TypeError: If there is something else in it.
  """
  digest = hashlib.sha256()
  for path, leaf in tree.flatten_with_path(value):
    array = np.ascontiguousarray(leaf)
    if not _is_value(array):
      raise TypeError(
        '`value` must have arrays, numbers and strings, found '
        f'{type(leaf).__name__}.'
      )
    digest.update(f'{path} {array.dtype} {np.shape(leaf)};'.encode())
    if array.dtype.hasobject:
      for element in array.flat:
        digest.update(f'{element!r};'.encode())
    else:
      digest.update(array.view(np.uint8).data)
  return digest.hexdigest()
