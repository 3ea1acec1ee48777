"""A private round: its outcome is saved, then charged, then released.

Under subsampling, k releases of one cohort with fresh noise are one sampled
Gaussian mechanism with noise z / sqrt(k), which costs far more than k
independent draws. And a user who runs a round again until its result pleases
sees more than one release. So a charged round is never run again.

The outcome of a round (state, public metrics, a random id) is on the disk
before the ledger has the line with that id, and the line is on the disk before
anything is released. A program that was killed leaves one of three things:

- No complete outcome. Nobody saw the round: it runs with fresh noise.
- An outcome that is not charged, saved after the ledger's last release. It is
  pending: it is charged and released, and its round is never run again.
- A charged outcome. It is released.

Only the id makes an outcome a charged one, never the number of a round: a
restored disk or a copied folder may have uncharged outcomes of the same round.
docs/theory.md has the proof, and what is not covered.
"""

import contextlib
import dataclasses
import hashlib
import numbers
import secrets
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff
import tree

from tff_clipping import interruption, storage_errors
from tff_clipping.aggregators import pipeline
from tff_clipping.privacy.ledger.ledger import (
  BudgetExhaustedError,
  PrivacyLedger,
  RoundChargedError,
)
from tff_clipping.programs.checks import (
  cohort_checks,
  process_checks,
  records,
)
from tff_clipping.programs.clients.client_sampling import ClientSampler
from tff_clipping.programs.clients.client_states import ClientStates
from tff_clipping.programs.training import round_metrics
from tff_clipping.programs.training.checkpoints import (
  Charge,
  Checkpoints,
  Outcome,
)

# A caveat.
GIVEN_NOISE = (
  'the seed of the noise was given, and whoever knows it can subtract the noise'
)
# How many numbers of each tensor tell one state from another.
_COMPARED = 1000


@dataclasses.dataclass(eq=False)
class _Position:
  """How far a run is, as far as this process knows."""

  store: Checkpoints
  round_num: int
  # The fingerprint of the state after the round; `None` if it is not known.
  state: str | None = None
  # Fingerprints of the states from which rounds were run.
  used: set[str] = dataclasses.field(default_factory=set)
  checks: cohort_checks.CohortChecks | None = None


# Of each ledger whose last outcome is charged. While an outcome is saved and
# not charged, its ledger has no position here.
_POSITIONS: weakref.WeakKeyDictionary[PrivacyLedger, _Position] = (
  weakref.WeakKeyDictionary()
)


def resume(
  ledger: PrivacyLedger,
  store: Checkpoints,
  initial_state: Any,
  *,
  start_over: bool = False,
  client_states: ClientStates | None = None,
) -> tuple[int, Any]:
  """Returns the round and the state from which a private run goes on.

  An outcome that a killed program saved and did not charge is charged. If the
  budget does not allow the charge, the outcome is set aside and never released.

  Args:
    ledger: The ledger.
    store: The store of the outcomes of the ledger's rounds.
    initial_state: The state before the first round, from `initialize` of the
      process.
    start_over: Whether the run may begin anew if all of its outcomes are lost.
      Its rounds are then new draws, and are charged again.
    client_states: What clients keep, as for `run_private_round`; begins, or
      goes on, with the run.

  Returns:
    The number of rounds that were released, and the state after them.

  Raises:
    ValueError: If the outcomes are of another process.
    StorageError: If the outcomes are not those of the ledger: they are of
      another ledger or of none, or newer than the ledger, or two are pending,
      or none is charged beside a charged ledger and the run may not begin
      anew. Nothing was moved or charged. Or if the ledger could not be written.
  """
  last = settle(ledger, store, start_over=start_over)
  if last is None:
    if client_states is not None:
      client_states.begin(ledger.run_id)
    return 0, initial_state
  if client_states is not None:
    client_states.resume(last.round_num, last.id)
  return last.round_num, store.load(last, initial_state)


@contextlib.contextmanager
def _writing() -> Iterator[None]:
  """Lets the ledger and what belongs to it be written before a signal ends."""
  with interruption.shield(), storage_errors.writing('The ledger'):
    yield


@_writing()
def settle(
  ledger: PrivacyLedger, store: Checkpoints, *, start_over: bool = False
) -> Outcome | None:
  """Charges what is pending; returns the last charged outcome, or `None`.

  Arguments and errors are those of `resume`.
  """
  # A line that was cut short does not say of which release it is.
  ids = _charged_ids(ledger)
  is_cut_short = ledger.num_releases and ledger.releases[-1].id is None
  charged, pending, stale = _sort(ledger, store, ids)
  if ledger.num_releases and not charged and not pending:
    if not (start_over and ledger.plan.allows_new_draws):
      to_do = (
        'or begin anew with `start_over=True`, where each round is charged '
        'again.'
        if ledger.plan.allows_new_draws
        else 'the rounds of this plan cannot be drawn anew.'
      )
      raise _not_of_ledger(
        store,
        f'the ledger has charged {ledger.num_releases} releases, and no '
        f'outcome of them is left. Restore the outcomes from a copy; {to_do}',
      )
  for path, message in store.damaged.items():
    store.set_aside(path, message, prefix='damaged')
  for outcome in stale:
    store.set_aside(
      outcome.path,
      f'The outcome {outcome.path.name} was never charged, and other rounds '
      'were charged since: it is not released.',
    )
  if is_cut_short and not pending:
    # Its outcome is lost: the line counts as a release of any round.
    ledger.name_cut_short(secrets.token_hex(16))
  for outcome, charge in pending:
    round_num, draw = outcome.round_num, charge.draw
    try:
      if is_cut_short:
        ledger.name_cut_short(outcome.id, round_num=round_num, draw=draw)
      else:
        ledger.charge(round_num, outcome.id, draw=draw)
      charged.append(outcome)
    except BudgetExhaustedError as e:
      store.set_aside(outcome.path, f'{e} The outcome is not released.')
  last = charged[-1] if charged else None
  _POSITIONS[ledger] = _Position(store, last.round_num if last else 0)
  return last


def _charged_ids(ledger: PrivacyLedger) -> list[str]:
  """Returns the ids that were charged, in order, after '' for none."""
  return ['', *(each.id for each in ledger.releases if each.id is not None)]


def _sort(
  ledger: PrivacyLedger, store: Checkpoints, ids: Sequence[str]
) -> tuple[list[Outcome], list[tuple[Outcome, Charge]], list[Outcome]]:
  """Returns the charged outcomes in order, the pending one, and the stale."""
  charged, pending, stale = [], [], []
  for outcome in store.outcomes():
    charge = outcome.charge
    if charge is None:
      reason = f'{outcome.path.name} was saved without a ledger.'
      raise _not_of_ledger(store, reason)
    if charge.run_id != ledger.run_id:
      reason = f'{outcome.path.name} is of another ledger.'
      raise _not_of_ledger(store, reason)
    if outcome.id in ids:
      charged.append(outcome)
    elif charge.after == ids[-1]:
      pending.append((outcome, charge))
    elif charge.after in ids:
      stale.append(outcome)
    else:
      raise _not_of_ledger(
        store,
        f'{outcome.path.name} was saved after a release that the ledger does '
        'not have: the ledger is older than its run. Restore the ledger and '
        'its seal from a copy that is as new as the last release.',
      )
  if len(pending) > 1:
    names = ' and '.join(outcome.path.name for outcome, _ in pending)
    raise _not_of_ledger(
      store,
      f'{names} are saved and not charged. Nobody may choose between two '
      'outcomes of one round: one is of a copy of the folder. Move the file of '
      'the copy away.',
    )
  charged.sort(key=lambda outcome: ids.index(outcome.id))
  return charged, pending, stale


def _not_of_ledger(
  store: Checkpoints, reason: str
) -> storage_errors.StorageError:
  return storage_errors.StorageError(
    f'The outcomes in {store.folder} are not those of the ledger: {reason} '
    'Nothing was moved or run.'
  )


def run_private_round(
  next_fn: Callable[[Any, Sequence[str]], Any],
  sampler: ClientSampler,
  ledger: PrivacyLedger,
  store: Checkpoints,
  *,
  state: Any,
  round_num: int,
  client_states: ClientStates | None = None,
) -> tuple[list[str], Any]:
  """Runs a round, saves its outcome and charges for it; then returns it.

  Without a record of its mechanism, nobody has checked the aggregator: the
  ledger takes that caveat before the round is charged.

  A loop of one's own begins with `resume`:

    round_num, state = resume(ledger, store, process.initialize())
    while round_num < plan.num_rounds:
      round_num += 1
      cohort, output = run_private_round(
        next_fn, sampler, ledger, store, state=state, round_num=round_num
      )
      state = output.state

  Args:
    next_fn: Runs a state and the ids of a cohort; returns an output of a
      `tff.learning.templates.LearningProcess`, with `state` and `metrics`.
    sampler: Draws the cohorts: what `build_private_sampler` returns for the
      ledger's plan, or a sampler of your own with the same law that says so in
      its `charged_as`.
    ledger: What is charged.
    store: Where the outcome is saved.
    state: The state after the round before, as `resume` or the last round
      returned it.
    round_num: The number of the round, the one after the last.
    client_states: What clients keep, for a process whose clients keep
      something; as given to `resume`. `next_fn` reads it for each client, and
      what the cohort keeps is written before the round is charged.

  Returns:
    The cohort, which is secret, and the output. Of the output, the plan covers
    the model and, of what was measured, what `round_metrics.flatten_metrics`
    takes to be public: these may be released.

  Raises:
    TypeError: If `next_fn` returns no values, such as the references of an
      asynchronous context. Nothing was charged.
    ValueError: If the sampler is not that of the ledger's plan, or draws what
      no such sampler would; if the record of the aggregator's mechanism is not
      that of the plan; if clients keep something without `client_states`, or
      under a plan that does not allow it; if the round has changed variables of
      the model that no client trains; if the state has the noise of another
      round; or if, under correlated noise or random allocation, the cohorts are
      not those of the rounds before. Nothing was charged.
    RoundChargedError: If the round was charged already, or the state is older
      than the last outcome, or the round would be a new draw and none is
      allowed. Nothing was run.
    BudgetExhaustedError: If the release would pass the plan's target. Nothing
      was run.
    DamagedLedgerError: If the ledger is not as it was written.
    StorageError: If the outcome could not be saved, and nothing was charged; or
      if the ledger could not be written. Then the outcome is pending: `resume`
      charges it.
  """
  if isinstance(round_num, bool) or not isinstance(round_num, numbers.Integral):
    raise TypeError(
      '`round_num` must be the number of the round, found a '
      f'{type(round_num).__name__}: `sampler` draws the cohort, and no data of '
      'clients are given.'
    )
  check_sampler(sampler, ledger)
  if client_states is not None:
    process_checks.check_keeping(ledger.plan)
  position = _check_position(ledger, store, round_num)
  began_from = _check_state(position, state)
  pipeline.check_next_round(state, round_num)
  ledger.check_budget(round_num)
  draw = ledger.next_draw(round_num)
  charge = Charge(
    run_id=ledger.run_id,
    after=_charged_ids(ledger)[-1],
    draw=draw,
  )
  is_seeded = pipeline.has_seed(state)
  if is_seeded and draw:
    raise RoundChargedError(
      f'Round {round_num} was charged, and cannot be drawn anew: the seed of '
      'its noise was given, and the noise would be the same. The run ends with '
      'the model that was released last.'
    )
  with _writing():
    _record_sources(sampler, ledger, is_seeded)
  cohort = sampler.sample(round_num, draw)
  if position.checks is None or position.checks.sampler is not sampler:
    position.checks = cohort_checks.CohortChecks(sampler, ledger.plan)
  position.checks.check(round_num, cohort)
  output = next_fn(state, cohort)
  _check_values(output)
  process_checks.check_round(state, output.state)
  kept = _find_kept(output.metrics)
  has_states = client_states is not None
  # A process of one's own may measure something of this name.
  is_ours = has_states or process_checks.is_own(output.state)
  if is_ours and has_states != (kept is not None):
    raise ValueError(
      '`client_states` must be given for a process whose clients keep '
      'something from round to round, and for no other, found '
      f'{"some for another" if has_states else "none"}.'
    )
  if records.check_mechanism(output.metrics, ledger.plan) is None:
    with _writing():
      ledger.add_caveats([records.UNCHECKED])
  outcome_id = secrets.token_hex(16)
  with _writing():
    if client_states is not None:
      client_states.write(round_num, outcome_id, cohort, kept)
    # Until the charge, only `resume` can go on.
    _POSITIONS.pop(ledger, None)
    store.save(
      output.state,
      round_num,
      outcome_id=outcome_id,
      charge=charge,
      released=round_metrics.released_values(output.metrics),
    )
    ledger.charge(round_num, outcome_id, draw=draw)
    position.used.add(began_from)
    position.round_num, position.state = round_num, _fingerprint(output.state)
    _POSITIONS[ledger] = position
  return cohort, output


def _check_position(
  ledger: PrivacyLedger, store: Checkpoints, round_num: int
) -> _Position:
  """Returns where a run is; raises unless a round is its next."""
  position = _POSITIONS.get(ledger)
  if position is None or position.store is not store:
    num_saved = len(store.rounds())
    if ledger.num_releases or num_saved:
      raise RoundChargedError(
        f'Round {round_num} cannot be run: the ledger has charged '
        f'{ledger.num_releases} releases, and {num_saved} outcomes are saved, '
        'perhaps one that is not charged yet. Call `resume(ledger, store, '
        '...)` first, and go on from the round and the state that it returns.'
      )
    position = _Position(store, 0)
  if round_num != position.round_num + 1:
    raise RoundChargedError(
      f'`round_num` must be {position.round_num + 1}, the round after the last '
      f'that was charged, found {round_num}. What was charged is not run '
      'again: take its outcome by `resume`.'
    )
  return position


def _check_state(position: _Position, state: Any) -> str:
  """Returns the fingerprint of a state; raises if it is an older one.

  A loop that discards rounds would spend the budget on what nobody gets.
  """
  given = _fingerprint(state)
  if given != position.state and given in position.used:
    raise RoundChargedError(
      f'`state` must be that after round {position.round_num}, which was '
      'charged, found an older one: a round that is discarded is paid for all '
      'the same. Go on from the state that the round returned.'
    )
  return given


def _fingerprint(state: Any) -> str:
  """Returns a digest of the first numbers of each tensor of a state.

  Fresh noise changes them in each round.
  """
  digest = hashlib.blake2b(digest_size=16)
  for leaf in tree.flatten(state):
    array = np.asarray(leaf)
    first = array.flat[:_COMPARED]
    digest.update(f'{array.dtype} {array.shape} '.encode())
    digest.update(
      repr(first.tolist()).encode()
      if array.dtype.hasobject
      else first.tobytes()
    )
  return digest.hexdigest()


def _record_sources(
  sampler: ClientSampler, ledger: PrivacyLedger, is_seeded: bool
) -> None:
  """Writes down of what cohorts and noise are drawn; refuses other cohorts."""
  if not ledger.plan.allows_new_draws:
    digest = getattr(sampler, 'digest', None)
    if digest is None:
      raise ValueError(
        '`sampler` must have the `digest` of what decides its cohorts, such as '
        'its seed and ids, where noise is correlated between rounds or clients '
        f'draw one round of an epoch, found none in {type(sampler).__name__}: '
        'other cohorts in the midst of a run would cost more than the plan '
        'charges for.'
      )
    ledger.check_cohorts(digest)
  if is_seeded:
    ledger.add_caveats([GIVEN_NOISE])
  seed = getattr(sampler, 'seed_digest', None)
  if seed is not None:
    ledger.record_seed(seed)


def check_context() -> None:
  """Raises a RuntimeError if this thread has no context of TFF.

  TFF itself would say that this error should not be expected.
  """
  current = type(tff.framework.get_context_stack().current)
  if current.__module__.endswith('runtime_error_context'):
    raise RuntimeError(
      'A program must run in a thread with a context of TFF, found none: call '
      '`tff_clipping.runtime.set_default_context()` in the thread that runs it.'
    )


def check_sampler(sampler: Any, ledger: PrivacyLedger) -> None:
  """Raises a ValueError if a sampler is of another plan, or of none."""
  expected = ledger.plan.sampler_parameters
  found = getattr(sampler, 'charged_as', None)
  if found != expected:
    raise ValueError(
      "`sampler` must be that of the ledger's plan, made by "
      f'`build_private_sampler`: {expected}; found {type(sampler).__name__} '
      f'for {found or "no plan"}. A sampler of your own with the '
      'same law says so: `charged_as = plan.sampler_parameters`.'
    )


def _find_kept(metrics: Any) -> Any:
  """Returns what the cohort keeps; `None` for clients that keep nothing."""
  work = metrics.get('client_work') if isinstance(metrics, Mapping) else None
  return work.get('kept') if isinstance(work, Mapping) else None


def _check_values(output: Any) -> None:
  """Raises if something in an output of a process is no value."""
  for path, leaf in tree.flatten_with_path((output.state, output.metrics)):
    array = np.asarray(leaf)
    if array.dtype.hasobject and not all(
      isinstance(element, (str, bytes)) for element in array.flat
    ):
      raise TypeError(
        '`next_fn` must return values, found '
        f'{type(leaf).__name__} at {".".join(map(str, path[1:]))}: those of an '
        'asynchronous context are to be awaited first, by '
        '`tff.program.materialize_value`, or `PrivateProcess` is to have a '
        'synchronous `context`.'
      )
