"""The training program: rounds, releases and checkpoints, in a safe order.

A round without a ledger is: draw the cohort; run the process; evaluate; let the
watchers measure; write what the clients keep; let the watchers record, the
metrics among them; write a checkpoint if one is due.

A round with a ledger is `run_private_round`: its outcome is saved and charged
before anything else is made of it. Then it is evaluated, measured and recorded.
A program that was killed after the charge does that when it goes on.
"""

import collections
import dataclasses
import enum
import functools
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow_federated as tff
import tree

from tff_clipping import argument_checks, storage_errors
from tff_clipping.interruption import Interrupted, Interruption, shield
from tff_clipping.privacy.ledger.ledger import (
  BudgetExhaustedError,
  DamagedLedgerError,
  PrivacyLedger,
  RoundChargedError,
)
from tff_clipping.privacy.plans import words
from tff_clipping.programs.checks import process_checks, records
from tff_clipping.programs.clients import client_states
from tff_clipping.programs.clients.client_sampling import ClientSampler
from tff_clipping.programs.clients.client_states import ClientStates
from tff_clipping.programs.training import private_rounds, round_metrics
from tff_clipping.programs.training.checkpoints import Checkpoints, Outcome
from tff_clipping.programs.training.watchers import (
  ClientsWork,
  Round,
  RoundWatcher,
)

EvaluateFn = Callable[[Any], Mapping[str, float]]
# What arguments must be, where another kind would be found late or never.
_KINDS: Mapping[str, Any] = {
  'sampler': ClientSampler,
  'checkpoints': Checkpoints,
  'evaluate': Callable | None,
  'watchers': list | tuple,
  'client_value': Callable,
  'test_metrics': list | tuple,
  'ledger': PrivacyLedger | None,
  'exact_metrics': bool | None,
  'should_stop': Callable,
  'initial_weights': tff.learning.models.ModelWeights | None,
  'client_states': ClientStates | None,
}
# The columns that nobody measures.
_OF_THE_ROUND = ('round_num', 'num_clients', 'round_seconds', 'epsilon')
# What Keras says of a model whose classes were turned into those of
# TensorFlow 1.
_BROKEN_KERAS = (
  'Your Layer or Model is in an invalid state',
  "has no attribute '_compile_time_distribution_strategy'",
)


class StopReason(enum.Enum):
  """Why training ended."""

  FINISHED = 'finished'
  BUDGET_EXHAUSTED = 'budget exhausted'
  DIVERGED = 'diverged'
  INTERRUPTED = 'interrupted'
  STOPPED = 'stopped'


# What was released decides on these.
_BY_RELEASES = (StopReason.DIVERGED, StopReason.STOPPED)


@dataclasses.dataclass(frozen=True)
class TrainingResult:
  """How training ended.

  Attributes:
    reason: Why it ended.
    message: The same in a sentence.
    round_num: The number of rounds done.
    state: The state of the process after them; `None` if not even the first
      could be made.
    interrupted: The signal's exception if `reason` is `INTERRUPTED`.
  """

  reason: StopReason
  message: str
  round_num: int
  state: Any
  interrupted: Interrupted | None = None


@dataclasses.dataclass(frozen=True)
class TrainingProgram:
  """Everything that a run consists of.

  The metrics of a round are the columns that docs/training.md lists, and each
  number that the process measured, by its path in the process's metrics:
  `aggregator/clipping_norm`, `client_work/train/loss`. With a ledger they are
  those alone that the record of the aggregator's mechanism names.

  Attributes:
    process: Any `tff.learning.templates.LearningProcess`.
    sampler: Draws the cohorts.
    num_rounds: The number of rounds, T.
    evaluate: Returns `test_loss` and the `test_metrics` of model weights, and
      what else is to be in the metrics; `None` for metrics without them.
    checkpoints: Where states are kept.
    watchers: Are shown every round, in this order: `MetricsFiles`,
      `ReleaseMetrics` for release managers of TFF, `UpdateRecords`, `RunAudit`,
      `AfterRounds`, or a `RoundWatcher` of your own.
    client_value: Returns what a client gives to the process, by its id: the id
      itself for a process with a client store.
    test_metrics: The columns of what `evaluate` measures beside the loss.
    rounds_per_evaluation: Evaluate each so many rounds, and after the last.
    rounds_per_checkpoint: Save each so many rounds, and at the end. Without
      effect with a ledger, which needs the outcome of each round.
    ledger: Is charged for every release; `None` if nothing is private. The
      sampler must be that of its plan, and so must the aggregator, by the
      record of its mechanism; without a record the ledger takes a caveat. With
      `exact_metrics`, or a watcher that sees clients, it must have a caveat:
      what these write, no plan covers.
    exact_metrics: Whether the metrics hold exact figures of the clients: the
      size of each cohort, the seconds of each round, which tell it and how much
      data the clients have, and all that the process measures. By default
      (`None`) they do without a ledger alone.
    should_stop: Is called with the metrics of every round, and ends the
      training before T where it returns True. `test_loss` is NaN in rounds
      without evaluation. With a ledger, the guarantee is that of all T rounds
      then.
    initial_weights: The `tff.learning.models.ModelWeights` to begin from, such
      as those of a model that was trained on public data; `None` for those that
      the process begins with. A run that goes on has its own.
    client_states: What the clients keep from round to round, for a process
      whose clients do; `None` for others.
    start_over: Whether a private run may begin anew where all of its outcomes
      are lost; see `resume`.
  """

  process: tff.learning.templates.LearningProcess
  sampler: ClientSampler
  num_rounds: int
  evaluate: EvaluateFn | None
  checkpoints: Checkpoints
  watchers: Sequence[RoundWatcher] = ()
  client_value: Callable[[str], Any] = process_checks.take_id
  test_metrics: Sequence[str] = ('test_accuracy',)
  rounds_per_evaluation: int = 1
  rounds_per_checkpoint: int = 10
  ledger: PrivacyLedger | None = None
  exact_metrics: bool | None = None
  should_stop: Callable[[collections.OrderedDict], bool] = lambda metrics: False
  initial_weights: tff.learning.models.ModelWeights | None = None
  client_states: ClientStates | None = None
  start_over: bool = False

  def __post_init__(self):
    for name, kind in _KINDS.items():
      value = getattr(self, name)
      if not isinstance(value, kind):
        raise TypeError(
          f'`{name}` must be {getattr(kind, "__name__", kind)}, found '
          f'{type(value).__name__}.'
        )
    for watcher in self.watchers:
      if not isinstance(watcher, RoundWatcher):
        raise TypeError(
          '`watchers` must be of `RoundWatcher`, found '
          f"{type(watcher).__name__}: `ReleaseMetrics` makes one of TFF's "
          'release managers, `AfterRounds` one of a function.'
        )
    argument_checks.check_integer('num_rounds', self.num_rounds, at_least=0)
    for name in ('rounds_per_evaluation', 'rounds_per_checkpoint'):
      argument_checks.check_integer(name, getattr(self, name), at_least=1)
    keeps = client_states.kept_type(self.process) is not None
    if keeps != (self.client_states is not None):
      raise ValueError(
        '`client_states` must be given for a process whose clients keep '
        'something from round to round, and for no other, found '
        f'{"none" if keeps else "some for one whose clients keep nothing"}.'
      )
    process_checks.check_client_value(self.process, self.client_value)
    if self.ledger is None:
      return
    private_rounds.check_sampler(self.sampler, self.ledger)
    process_checks.check_process(self.process, self.ledger.plan)
    exact = [
      f'`{type(watcher).__name__}`'
      for watcher in self.watchers
      if watcher.sees_clients
    ]
    if self.exact_metrics:
      exact.append('`exact_metrics`')
    # The caveats of a plan, and those that rounds add, say nothing of files.
    others = {
      *self.ledger.plan.caveats,
      *(records.UNCHECKED, private_rounds.GIVEN_NOISE),
    }
    if exact and not set(self.ledger.caveats).difference(others):
      raise ValueError(
        f'{exact[0]} must be left out, or the ledger say that its plan does '
        "not hold, found no caveat that says so: the run's files would have "
        'exact figures of the clients. Say so to whoever reads it: '
        "`PrivacyLedger(..., caveats=['the files hold exact figures'])`."
      )

  def run(self) -> TrainingResult:
    """Runs all rounds that are not done yet.

    Returns:
      How training ended. The state that it holds is checkpointed.

    Raises:
      StorageError: If a file cannot be written, or is damaged, or another
        program has these checkpoints. What was done until the last checkpoint
        is kept.
      ValueError: If the checkpoints are of another process, or of more rounds.
      RuntimeError: If this thread has no context.
      RoundError: If a round fails, had less noise than the ledger's plan
        charges for, or its model cannot be evaluated. What was done before it
        is kept.
    """
    private_rounds.check_context()
    with self.checkpoints.locked():
      return self._run_all()

  def _run_all(self) -> TrainingResult:
    """Runs the rounds, with no other program at these checkpoints."""
    progress, signals = _Progress(), Interruption()
    interrupted = None
    try:
      with signals.catch():
        stop = self._start(progress)
        while stop is None and progress.round_num < self.num_rounds:
          stop = self._run_round(progress)
        with shield():
          self._save(progress)
        reason, message = stop or (
          StopReason.FINISHED,
          f'Finished {words.count_rounds(self.num_rounds)}.',
        )
        if self.ledger and self.ledger.num_releases and reason in _BY_RELEASES:
          message += (
            ' What was released decided on it, so that the epsilon of the '
            'rounds that were run is no guarantee: count all '
            f'{self.num_rounds}.'
          )
    except Interrupted as e:
      interrupted = e
    except Exception as e:
      # A signal can become another exception in TensorFlow.
      interrupted = signals.arrived
      if interrupted is None:
        if isinstance(e, RoundError):
          # The rounds before it are done, and charged.
          self._save(progress)
        raise
    if interrupted is not None:
      # From here on, another signal ends the program at once.
      self._save(progress)
      reason = StopReason.INTERRUPTED
      message = (
        f'Stopped by {interrupted.signal.name} after round '
        f'{progress.round_num}; the same command continues.'
      )
    return TrainingResult(
      reason, message, progress.round_num, progress.state, interrupted
    )

  def _start(self, progress: '_Progress') -> '_Stop | None':
    """Goes on from what was saved, or begins; returns why to stop, if so."""
    state = self.process.initialize()
    if self.initial_weights is not None:
      state = self.process.set_model_weights(state, self.initial_weights)
    if self.ledger is None:
      last = self.checkpoints.latest()
    else:
      last = private_rounds.settle(
        self.ledger, self.checkpoints, start_over=self.start_over
      )
    if last is not None:
      return self._go_on(progress, last, state)
    model = self.process.get_model_weights(state)
    metrics = self._new_row(0)
    if self._is_exact:
      metrics['num_clients'] = 0
    if not self._evaluate(metrics, model):
      return (
        StopReason.DIVERGED,
        'The test loss of the initial model is not finite, found '
        f'{metrics["test_loss"]}.',
      )
    if self.ledger is not None:
      progress.outcome_id = self.ledger.run_id
    with shield():
      if self.client_states is not None:
        self.client_states.begin(progress.outcome_id)
      self._record(Round(0, metrics, model))
      progress.done = 0, state
      self._save(progress)
    return None

  def _go_on(
    self, progress: '_Progress', last: Outcome, initial_state: Any
  ) -> '_Stop | None':
    """Goes on from a checkpoint; records the round of a private one again."""
    if last.round_num > self.num_rounds:
      raise ValueError(
        '`num_rounds` must be at least those that were run, '
        f'{last.round_num} by the last checkpoint, found {self.num_rounds}.'
      )
    state = self.checkpoints.load(last, initial_state)
    progress.done = last.round_num, state
    if self.client_states is not None:
      self.client_states.resume(last.round_num, last.id)
    if self.ledger is None:
      return None
    # The program that saved it may have been killed before it did this.
    model = self.process.get_model_weights(state)
    metrics = self._new_row(last.round_num)
    what = self._find_divergence(metrics, model)
    if what is not None:
      if last.round_num == 1:
        progress.done = 0, initial_state
      for before in self.checkpoints.outcomes():
        if before.round_num == last.round_num - 1:
          state = self.checkpoints.load(before, initial_state)
          progress.done = before.round_num, state
      return _diverged(what, last.round_num, progress.round_num)
    metrics.update(
      (name, value)
      for name, value in last.released.items()
      if not isinstance(value, list)
    )
    with shield():
      self._record(
        Round(last.round_num, metrics, model, released=last.released)
      )
    return None

  def _run_round(self, progress: '_Progress') -> '_Stop | None':
    """Goes on by a round, or stays where it is; returns why to stop, if so."""
    start = time.monotonic()
    before = dataclasses.replace(progress)
    state, round_num = progress.state, progress.round_num + 1
    try:
      cohort, output = self._draw_and_run(state, round_num)
    except BudgetExhaustedError as e:
      return StopReason.BUDGET_EXHAUSTED, str(e)
    except DamagedLedgerError as e:
      raise storage_errors.StorageError(str(e)) from e
    except (RoundChargedError, ValueError) as e:
      raise RoundError(str(e)) from e
    seconds = time.monotonic() - start
    if self.ledger is not None:
      # It is saved and charged, whatever comes of its evaluation.
      progress.done = round_num, output.state
    first = progress.before_rejected
    progress.before_rejected = before if _is_rejected(output.metrics) else None
    model = self.process.get_model_weights(output.state)
    metrics = self._new_row(round_num)
    what: str | None
    if first is not None and progress.before_rejected is not None:
      # Without a ledger, the run begins again before both, and ends here again.
      before, what = first, 'The aggregate of the updates is'
    else:
      what = self._find_divergence(metrics, model)
    if what is not None:
      progress.return_to(before)
      return _diverged(what, round_num, progress.round_num)
    metrics.update(
      round_metrics.flatten_metrics(
        output.metrics, is_private=not self._is_exact
      )
    )
    if self._is_exact:
      metrics.update(
        num_clients=len(cohort),
        round_seconds=seconds,
        **round_metrics.summarize_updates(output.metrics, len(cohort)),
      )
    done = Round(
      round_num,
      metrics,
      model,
      model_before=lambda: self.process.get_model_weights(state),
      released=round_metrics.released_values(output.metrics),
      work=ClientsWork(cohort, output.metrics),
    )
    for watcher, seen in self._show(done):
      name = f'`{type(watcher).__name__}.measure`'
      self._add(metrics, name, functools.partial(watcher.measure, seen))
    stops = self.should_stop(metrics)
    if (
      stops
      and math.isnan(metrics['test_loss'])
      and not self._evaluate(metrics, model)
    ):
      progress.return_to(before)
      return _diverged('The test loss is', round_num, progress.round_num)
    with shield():
      outcome_id = secrets.token_hex(16)
      # In a private round it was done before the charge.
      if self.ledger is None and self.client_states is not None:
        kept = output.metrics['client_work']['kept']
        self.client_states.write(round_num, outcome_id, cohort, kept)
      self._record(done)
      progress.done = round_num, output.state
      progress.outcome_id = outcome_id
      if self.ledger or round_num % self.rounds_per_checkpoint == 0:
        self._save(progress)
    for watcher, seen in self._show(done):
      watcher.after(seen)
    if not stops:
      return None
    message = f'Stopped after round {round_num}, as `should_stop` asked for.'
    return StopReason.STOPPED, message

  def _draw_and_run(self, state: Any, round_num: int) -> tuple[list[str], Any]:
    """Returns the cohort of a round and what came out; charges for it."""

    def next_fn(state: Any, cohort: Sequence[str]) -> Any:
      values = [self._value_of(client_id, round_num) for client_id in cohort]
      try:
        return self.process.next(state, values)
      except Exception as e:
        raise RoundError(f'Round {round_num} failed: {e}') from e

    if self.ledger is None:
      cohort = self.sampler.sample(round_num)
      return cohort, next_fn(state, cohort)
    return private_rounds.run_private_round(
      next_fn,
      self.sampler,
      self.ledger,
      self.checkpoints,
      state=state,
      round_num=round_num,
      client_states=self.client_states,
    )

  def _value_of(self, client_id: str, round_num: int) -> Any:
    """Returns what a client gives to the process, and what it has kept."""
    try:
      value = self.client_value(client_id)
    except Exception as e:
      raise RoundError(
        f'Round {round_num} failed: `client_value` has nothing for the client '
        f'{client_id!r}: {type(e).__name__}: {e}'
      ) from e
    if self.client_states is None:
      return value
    kept = self.client_states.read(client_id, round_num)
    return collections.OrderedDict(client=value, kept=kept)

  def _find_divergence(
    self, metrics: collections.OrderedDict, model: Any
  ) -> str | None:
    """Evaluates a model if that is due; returns what is not finite."""
    if not all(np.all(np.isfinite(leaf)) for leaf in tree.flatten(model)):
      return 'The model is'
    round_num, ledger = metrics['round_num'], self.ledger
    is_due = (
      round_num % self.rounds_per_evaluation == 0
      or round_num == self.num_rounds
      # The budget is spent.
      or (ledger and not ledger.plan.permits(ledger.num_releases + 1))
    )
    if is_due and not self._evaluate(metrics, model):
      return 'The test loss is'
    return None

  def _save(self, progress: '_Progress') -> None:
    """Lets what was done survive a power cut."""
    if progress.done is None:
      return
    for watcher in self.watchers:
      watcher.sync()
    round_num, state = progress.done
    if self.ledger is None and self.checkpoints.rounds()[-1:] != [round_num]:
      self.checkpoints.save(state, round_num, outcome_id=progress.outcome_id)
    if self.client_states is not None and self.checkpoints.rounds():
      # As far back as a damaged checkpoint may take the run.
      self.client_states.drop_before(min(self.checkpoints.rounds()))

  def _new_row(self, round_num: int) -> collections.OrderedDict[str, float]:
    """Returns the columns that every run has, NaN where nothing is measured."""
    names = (*_OF_THE_ROUND, *self._evaluated, *round_metrics.SUMMARY)
    row = collections.OrderedDict.fromkeys(names, math.nan)
    row['round_num'] = round_num
    if self.ledger is not None:
      row['epsilon'] = self.ledger.epsilon
    return row

  @property
  def _evaluated(self) -> tuple[str, ...]:
    """The columns of what is measured on the test set."""
    return (*self.test_metrics, 'test_loss')

  @property
  def _is_exact(self) -> bool:
    """Whether the metrics hold exact figures of the clients."""
    return (
      self.ledger is None if self.exact_metrics is None else self.exact_metrics
    )

  def _evaluate(self, metrics: collections.OrderedDict, model: Any) -> bool:
    """Adds what `evaluate` returns; returns whether the run may go on."""
    evaluate = self.evaluate
    if evaluate is None:
      return True
    self._add(metrics, '`evaluate`', lambda: evaluate(model), self._evaluated)
    return math.isfinite(metrics['test_loss'])

  def _add(
    self,
    metrics: collections.OrderedDict,
    name: str,
    measure: Callable[[], Mapping[str, float]],
    columns: Sequence[str] = (),
  ) -> None:
    """Adds what somebody measures, these columns and others, to a row."""
    when = f'after round {metrics["round_num"]}'
    try:
      found = measure()
    except Exception as e:
      reason = str(e)
      if any(said in reason for said in _BROKEN_KERAS):
        reason = (
          'a Keras model that was made before a process of TFF cannot be used '
          'after it: make the model after the last process, or make one more '
          'of its kind there, which repairs it.'
        )
      raise RoundError(f'{name} failed {when}: {reason}') from e
    if not isinstance(found, Mapping) or not found.keys() >= set(columns):
      kind = ' and '.join(columns) or 'numbers'
      raise RoundError(
        f'{name} must return a dict of {kind}, found {found!r} {when}.'
      )
    taken = {*_OF_THE_ROUND, *self._evaluated}.difference(columns)
    for column, value in found.items():
      if column in taken:
        raise RoundError(
          f'{name} must not return `{column}`, which is a metric of the '
          f'round, found {value!r} {when}.'
        )
      if np.asarray(value).dtype.kind not in 'biuf':
        raise RoundError(
          f'{name} must return numbers, found `{column}` {value!r} {when}.'
        )
    metrics.update(found)

  def _show(self, done: Round) -> Iterator[tuple[RoundWatcher, Round]]:
    """Yields each watcher with what it may see of a round."""
    for watcher in self.watchers:
      if watcher.sees_clients:
        yield watcher, done
      else:
        yield watcher, dataclasses.replace(done, work=None)

  def _record(self, done: Round) -> None:
    for watcher, seen in self._show(done):
      watcher.record(seen)


class RoundError(RuntimeError):
  """A round could not be run, or its model not evaluated."""


@dataclasses.dataclass
class _Progress:
  """How far a run has come."""

  # The number of rounds done, and the state after them. One attribute, because
  # a signal may arrive between any two assignments.
  done: tuple[int, Any] | None = None
  # Under which the state is saved.
  outcome_id: str = dataclasses.field(
    default_factory=lambda: secrets.token_hex(16)
  )
  # Before the last round, if that left the model as it was.
  before_rejected: '_Progress | None' = None

  @property
  def round_num(self) -> int:
    return 0 if self.done is None else self.done[0]

  @property
  def state(self) -> Any:
    return None if self.done is None else self.done[1]

  def return_to(self, before: '_Progress') -> None:
    # A signal between the two would save a state under the id of another.
    with shield():
      self.done, self.outcome_id = before.done, before.outcome_id


# Why a run ends, and that in a sentence.
_Stop: TypeAlias = tuple[StopReason, str]


def _diverged(what: str, round_num: int, kept: int) -> _Stop:
  return (
    StopReason.DIVERGED,
    f'{what} not finite after round {round_num}: learning rates may be too '
    'large, features not scaled to about 1, or an aggregator wrong. The state '
    f'after round {kept} is kept.',
  )


def _is_rejected(metrics: Any) -> bool:
  """Returns whether TFF's finalizer has dropped an update that is not finite.

  One such round may be that of a cohort without clients or examples, which has
  no mean. A run that has diverged has such rounds only.
  """
  finalizer = metrics.get('finalizer') if isinstance(metrics, Mapping) else None
  return isinstance(finalizer, Mapping) and bool(
    finalizer.get('update_non_finite', 0)
  )
