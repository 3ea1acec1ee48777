"""Tests of `run_private_round`: what a round releases, and what it refuses."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.privacy.ledgers import read_releases
from tests.programs import noised_scalar
from tff_clipping import privacy
from tff_clipping.programs.clients.client_sampling import (
  FixedSizeSampler,
  build_private_sampler,
)
from tff_clipping.programs.training import private_rounds
from tff_clipping.storage_errors import StorageError

_Output = tff.learning.templates.LearningProcessOutput
_STATE = np.float32(0)


@pytest.fixture(name='ledger')
def _ledger(tmp_path):
  plan = noised_scalar.plan()
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    yield ledger


def _sampler(plan, seed=3):
  return build_private_sampler(plan, noised_scalar.IDS, seed=seed)


def _run(ledger, next_fn, *, state=_STATE, round_num=1, sampler=None):
  return private_rounds.run_private_round(
    next_fn,
    sampler or _sampler(ledger.plan),
    ledger,
    state=state,
    round_num=round_num,
  )


def _process(noise_key):
  return noised_scalar.build_process(noised_scalar.plan(), noise_key)


def _next_of_zeros(process):
  """Returns the round of a process whose clients all send zero."""
  return lambda state, cohort: process.next(
    state, [np.float32(0)] * len(cohort)
  )


@pytest.mark.parametrize('is_known', [True, False])
def test_other_data_in_a_repeated_round_are_never_released(
  ledger, monkeypatch, is_known
):
  if is_known:
    noised_scalar.set_environment(monkeypatch, 'here')
  noise = iter(range(100))
  seen = []

  def next_fn(state, cohort):
    seen.append(tuple(cohort))
    return _Output(np.float32(next(noise)), ())

  for _ in range(3):
    cohort, output = _run(ledger, next_fn)
    assert seen[-1] == tuple(cohort)
  assert ledger.num_releases == 3
  # Were the bits to be the same, that they are not tells of the clients.
  assert bool(ledger.caveats) == is_known
  # Each repeat first tried the cohort that was charged last.
  assert len(seen) == 5
  assert len({seen[0], seen[2], seen[4]}) == 3
  assert (seen[1], seen[3]) == (seen[0], seen[2])
  assert output.state == 4


def test_a_round_that_was_charged_elsewhere_is_drawn_anew_whatever_its_bits(
  ledger, monkeypatch
):
  # The result is the same in all, and whether it is depends on the clients.
  seen = []

  def next_fn(state, cohort):
    seen.append(tuple(cohort))
    return _Output(state, ())

  for name in ('a', 'a', 'b', 'b', 'a'):
    noised_scalar.set_environment(monkeypatch, name)
    _run(ledger, next_fn)
  assert ledger.num_releases == 3
  sampler = _sampler(ledger.plan)
  draws = [0, 0, 0, 1, 1, 1, 2]
  assert seen == [tuple(sampler.sample(1, draw)) for draw in draws]
  assert len(set(seen)) == 3


@pytest.mark.slow
def test_the_warning_of_a_new_draw_is_a_line_with_the_cause(ledger, caplog):
  process = _process(None)
  state = process.initialize()
  for _ in range(2):
    _run(ledger, _next_of_zeros(process), state=state)
  (message,) = caplog.messages
  assert message == (
    'Round 1, run again, may give other bits (it draws random numbers, in the '
    'model, or as its noise, which has no `noise_key`): it is drawn anew, and '
    'charged again.'
  )


def test_a_round_of_a_ledger_that_does_not_say_where_is_drawn_anew(ledger):
  output = _Output(np.float32(0), ())
  ledger.charge(1, private_rounds.compute_digest(tuple(output)))
  _run(ledger, lambda state, cohort: output)
  assert ledger.rounds == [1, 1]


def test_a_round_that_cannot_be_drawn_anew_is_not_released_elsewhere(
  ledger, monkeypatch
):
  state = {'privacy_noise': {'key': np.int64(1), 'ledger': np.int64(0)}}

  def run():
    _run(ledger, lambda state, cohort: _Output(state, ()), state=state)

  noised_scalar.set_environment(monkeypatch, 'a')
  run()
  noised_scalar.set_environment(monkeypatch, 'b')
  with pytest.raises(privacy.ChangedReleaseError, match='has no `draw`'):
    run()
  # Of its result, nobody knows whether it would have been the same.
  assert ledger.num_releases == 1
  noised_scalar.set_environment(monkeypatch, 'a')
  run()
  assert ledger.num_releases == 1


def test_a_sampler_that_the_ledger_does_not_charge_for_is_refused(ledger):
  sampler = FixedSizeSampler(noised_scalar.IDS, clients_per_round=8, seed=0)
  seen = []
  with pytest.raises(ValueError, match='`sampler` must be that of the ledg'):
    _run(ledger, lambda *args: seen.append(args), sampler=sampler)
  assert ledger.num_releases == 0
  assert not seen


def test_a_cohort_that_no_sampler_of_the_plan_draws_is_not_charged(
  ledger, tmp_path
):
  class Twice(FixedSizeSampler):
    def sample(self, round_num, draw=0):
      return 2 * super().sample(round_num, draw)

  sampler = Twice(noised_scalar.IDS, clients_per_round=8, seed=0)
  sampler.charged_as = ledger.plan.sampler_parameters
  seen = []
  with pytest.raises(ValueError, match='a client at most once in a cohort'):
    _run(ledger, lambda *args: seen.append(args), sampler=sampler)
  contents = privacy.read_ledger(tmp_path / 'ledger.jsonl')
  assert (contents.num_releases, contents.seeds, seen) == (0, (), [])


def test_the_ledger_knows_a_seed_of_cohorts_again(tmp_path):
  plan = noised_scalar.plan()
  seeds = []
  for place, seed in enumerate((3, 3, 4)):
    path = tmp_path / f'{place}.jsonl'
    with privacy.PrivacyLedger(path, plan) as ledger:
      for round_num in (1, 2):
        _run(
          ledger,
          lambda state, cohort: _Output(state, ()),
          round_num=round_num,
          sampler=_sampler(plan, seed),
        )
    seeds.append(privacy.read_ledger(path).seeds)
  assert [len(each) for each in seeds] == [1, 1, 1]
  assert seeds[0] == seeds[1] != seeds[2]


def test_an_empty_cohort_is_released_and_charged(tmp_path):
  plan = privacy.PrivacyPlan(
    num_clients=4,
    clients_per_round=1,
    num_rounds=50,
    target_delta=1e-2,
    noise_multiplier=1.0,
  )
  sampler = build_private_sampler(plan, noised_scalar.IDS[:4], seed=3)
  empty = next(t for t in range(1, 51) if not sampler.sample(t))
  process = noised_scalar.build_process(plan, 'drawn')
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    cohort, output = _run(
      ledger,
      _next_of_zeros(process),
      state=process.initialize(),
      round_num=empty,
      sampler=sampler,
    )
    assert cohort == []
    assert ledger.rounds == [empty]
    assert ledger.last_draw(empty) == 0
  assert process.get_model_weights(output.state).trainable[0] != 0


def test_noise_that_cannot_be_drawn_anew_ends_a_round_with_other_bits(
  ledger, monkeypatch
):
  noised_scalar.set_environment(monkeypatch, 'here')
  # The key of the noise is kept, and no number of the draw: the next draw would
  # have the same noise on another cohort.
  state = {'privacy_noise': {'key': np.int64(1), 'ledger': np.int64(0)}}
  bits = iter([1, 2, 3])

  def next_fn(state, cohort):
    del cohort
    return _Output(state | {'weights': np.float32(next(bits))}, ())

  _run(ledger, next_fn, state=state)
  with pytest.raises(privacy.ChangedReleaseError, match='has no `draw`'):
    _run(ledger, next_fn, state=state)
  assert ledger.num_releases == 1


@pytest.mark.parametrize(
  'other',
  [
    dict(a=np.float32(1.5), b=['x', 2]),
    dict(a=np.float64(1), b=['x', 2]),
    dict(a=np.ones(1, np.float32), b=['x', 2]),
    dict(a=np.float32(1), b=['y', 2]),
    dict(a=np.float32(1), c=['x', 2]),
    dict(a=np.float32(1), b=['x', np.array([], np.int64)]),
    dict(a=tf.constant(1.0, tf.bfloat16).numpy(), b=['x', 2]),
  ],
)
def test_the_digest_tells_values_from_others(other):
  value = dict(a=np.float32(1), b=['x', 2])
  same = dict(a=tf.constant(1.0), b=['x', np.int64(2)])
  digest = private_rounds.compute_digest(value)
  assert private_rounds.compute_digest(same) == digest
  assert private_rounds.compute_digest(other) != digest


def _change_nothing(state):
  state['a'].flags.writeable = False


def _write(state):
  state['a'][0] = 3


def _replace(state):
  _change_nothing(state)
  state['a'] = np.float32([5, 6])
  _change_nothing(state)


def _add(state):
  _change_nothing(state)
  state['b'] = 4


@pytest.mark.parametrize('change', [_change_nothing, _write, _replace, _add])
def test_the_ledger_says_from_which_state_a_round_was_computed(ledger, change):
  """Also where the state that the round before gave was changed in place."""
  after = dict(a=np.float32([1, 2]))
  _run(ledger, lambda state, cohort: _Output(after, ()))
  change(after)
  _run(
    ledger, lambda state, cohort: _Output(state, ()), state=after, round_num=2
  )
  digest = private_rounds.compute_digest(after)
  assert ledger.last_environment(2).endswith(f', state {digest[:16]}')


def test_exact_metrics_of_clients_are_not_in_the_digest_that_is_written(
  tmp_path, monkeypatch
):
  """The digest is in a file: few possible values could be searched for."""
  noised_scalar.set_environment(monkeypatch, 'here')
  plan = noised_scalar.plan()
  lines = []
  for name, num_examples in (('a', 10), ('b', 11)):

    def next_fn(state, cohort, num_examples=num_examples):
      metrics = collections.OrderedDict(
        client_work=collections.OrderedDict(num_examples=num_examples),
        aggregator=collections.OrderedDict(clipping_norm=np.float32(1)),
      )
      return _Output(state, metrics)

    with privacy.PrivacyLedger(tmp_path / name, plan) as ledger:
      _run(ledger, next_fn)
    lines.append(read_releases(tmp_path / name))
  assert lines[0] == lines[1]


def test_exact_figures_are_in_no_digest(ledger, monkeypatch):
  noised_scalar.set_environment(monkeypatch, 'here')
  counts = iter([3, 4, 5])

  def next_fn(state, cohort):
    del cohort
    count = np.int32(next(counts))
    return _Output(
      state,
      {
        'client_work': {'num_examples': count},
        'aggregator': {'clipping_norm': np.float32(1), 'clipped_count': count},
        'finalizer': {'update_non_finite': np.int32(0)},
      },
    )

  for _ in range(3):
    _run(ledger, next_fn)
  # The same bits are released, whatever else was measured.
  assert ledger.num_releases == 1


@pytest.mark.parametrize('noise_key', ['drawn', None])
def test_the_state_of_another_round_is_refused_where_its_noise_repeats(
  ledger, noise_key
):
  process = _process(noise_key)

  def run(state, round_num):
    _, output = _run(
      ledger, _next_of_zeros(process), state=state, round_num=round_num
    )
    return output.state

  first = process.initialize()
  second = run(first, 1)
  if noise_key is None:
    run(first, 2)
    return
  # The noise of round 1, and of round 2, on the results of another one.
  for state, round_num in ((first, 2), (second, 1), (second, 3)):
    with pytest.raises(
      ValueError, match=f'`state` must be that before round {round_num}'
    ):
      run(state, round_num)
  assert ledger.rounds == [1]
  run(second, 2)


def test_the_same_state_has_other_noise_under_another_ledger(tmp_path):
  process = _process('drawn')
  state = process.initialize()
  weights = []
  for name in ('a', 'a', 'b'):
    with privacy.PrivacyLedger(tmp_path / name, noised_scalar.plan()) as ledger:
      _, output = _run(ledger, _next_of_zeros(process), state=state)
    weights.append(process.get_model_weights(output.state).trainable[0])
  assert weights[0] == weights[1]
  # With the same noise, nothing would hide the difference of other updates.
  assert abs(weights[0] - weights[2]) > 1e-6


@pytest.mark.parametrize('noise_key', [(1, 2), 'drawn', None])
def test_the_ledger_says_that_a_key_was_given(ledger, noise_key):
  process = _process(noise_key)
  _run(ledger, _next_of_zeros(process), state=process.initialize())
  is_given = isinstance(noise_key, tuple)
  assert ledger.caveats == (private_rounds.GIVEN_NOISE,) * is_given


def test_a_state_of_another_ledger_is_refused(tmp_path):
  process = _process('drawn')

  def run(name, state, round_num):
    with privacy.PrivacyLedger(tmp_path / name, noised_scalar.plan()) as ledger:
      _, output = _run(
        ledger, _next_of_zeros(process), state=state, round_num=round_num
      )
    return output.state

  first, second = (run(name, process.initialize(), 1) for name in ('a', 'b'))
  with pytest.raises(ValueError, match='of a run that began with this ledger'):
    run('b', first, 2)
  run('b', second, 2)


def test_a_ledger_that_lacks_the_rounds_of_a_state_is_refused(ledger, tmp_path):
  process = _process('drawn')
  next_fn = _next_of_zeros(process)
  state = process.initialize()
  for round_num in (1, 2):
    _, output = _run(ledger, next_fn, state=state, round_num=round_num)
    state = output.state
  path = tmp_path / 'elsewhere.jsonl'
  with (
    privacy.PrivacyLedger(path, ledger.plan) as other,
    pytest.raises(StorageError, match='has no release of round 1'),
  ):
    _run(other, next_fn, state=state, round_num=3)
  assert other.num_releases == 0


def test_references_of_an_asynchronous_context_are_refused(ledger):
  process = _process('drawn')
  reference = object()

  def next_fn(state, cohort):
    output = _next_of_zeros(process)(state, cohort)
    metrics = {**output.metrics, 'noise_stddev': reference}
    return _Output(output.state, metrics)

  with pytest.raises(TypeError, match='`next_fn` must return values, found '):
    _run(ledger, next_fn, state=process.initialize())
  assert ledger.num_releases == 0
  with pytest.raises(TypeError, match='`value` must have arrays'):
    private_rounds.compute_digest([reference])


def test_strings_in_a_round_are_values(ledger):
  process = _process('drawn')
  # As TFF returns a tensor of strings.
  names = np.array([b'a', b'b'], object)

  def next_fn(state, cohort):
    output = _next_of_zeros(process)(state, cohort)
    return _Output(
      output.state, {**output.metrics, 'names': names, 'name': b'c'}
    )

  _run(ledger, next_fn, state=process.initialize())
  assert ledger.num_releases == 1
