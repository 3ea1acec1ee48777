"""Audits of whole pipelines: broken ones are caught, sound ones never refuted.

Every audit here has a confidence of 1 - 1e-6: a sound pipeline is refuted, and
its test fails, once in a million times at most. The canaries and cohorts of the
tests are fixed; the noise is drawn anew in each run.
"""

import functools
import math

import numpy as np
import pytest
import tensorflow_federated as tff
from scipy import stats

from tff_clipping import aggregators
from tff_clipping.aggregators import l2_clip
from tff_clipping.privacy import PrivacyPlan, audit
from tff_clipping.programs.audit import canary_clients
from tff_clipping.programs.clients import client_sampling

_CONFIDENCE = 1 - 1e-6
_CLIP = 0.5


def _plan(sampling, *, num_canaries, noise_multiplier, num_rounds=4):
  """Returns a plan for the canaries and a quarter as many clients."""
  num_clients = num_canaries * 5 // 4
  return PrivacyPlan(
    num_clients=num_clients,
    clients_per_round=num_clients if sampling == 'none' else num_clients // 2,
    num_rounds=num_rounds,
    target_delta=1e-4,
    noise_multiplier=noise_multiplier,
    sampling=sampling,
    accountant='rdp' if sampling in ('poisson', 'none') else 'pld',
  )


def _canaries(plan, num_parameters=1024):
  return audit.Canaries(
    num_canaries=plan.num_clients * 4 // 5,
    num_parameters=num_parameters,
    seed=7,
    relation=plan.relation,
  )


@functools.cache
def _process(build, parameters, num_clients, num_parameters):
  """Returns a process, which plans of the same noise and clients share."""
  half = tff.TensorType(np.float32, [num_parameters // 2])
  return build(parameters, num_clients).create(tff.to_type([half, half]))


def _run(plan, canaries, build, *, keep_state=True):
  """Returns the products of the releases, in units of a clipped client.

  Canaries send their direction, 100 times as long as the clipping norm; clients
  send random vectors of that norm.
  """
  clients = [f'client {i}' for i in range(plan.num_clients // 5)]
  sampler = canary_clients.CanarySampler(
    client_sampling.build_private_sampler(
      plan, clients + canary_clients.canary_ids(canaries), seed=4
    ),
    canaries,
  )
  rng = np.random.default_rng(5)
  d = canaries.num_parameters
  values = {c: _CLIP * rng.normal(size=d) / math.sqrt(d) for c in clients}
  for name, mark in zip(
    canary_clients.canary_ids(canaries), canaries.marks, strict=True
  ):
    values[name] = 100 * _CLIP * canaries.direction(mark)
  process = _process(build, plan.aggregator_parameters, plan.num_clients, d)
  initial = state = process.initialize()
  products = []
  for round_num in range(1, plan.num_rounds + 1):
    halves = [
      np.split(values[name].astype(np.float32), 2)
      for name in sampler.sample(round_num)
    ]
    output = process.next(state, halves)
    state = output.state if keep_state else initial
    # What is composed by hand measures the norm elsewhere, or not at all.
    unit = float(output.measurements.get('clipping_norm', _CLIP))
    products.append(
      canaries.project(output.result) * plan.clients_per_round / unit
    )
  return np.stack(products)


def _audit(plan, canaries, products):
  scores = dict(
    audit.score_releases(
      products,
      sampling_prob=plan.sampling_prob,
      noise_multiplier=plan.noise_multiplier,
      relation=canaries.relation,
    )
  )
  scores['final_model'] = products.sum(axis=0)
  return audit.audit_plan(plan, canaries, scores, confidence=_CONFIDENCE)


# What builds a pipeline takes z and P of a plan, and the number of clients.


def _private(build, parameters, num_clients, **arguments):
  """Returns a private mean with the noise of a plan."""
  del num_clients
  return build(**dict(clipping_norm=_CLIP) | parameters._asdict() | arguments)


_dp_mean = functools.partial(_private, aggregators.dp_mean_factory)


def _without_noise(parameters, _):
  return aggregators.difference_clipping_factory(
    _CLIP,
    aggregators.fixed_denominator_mean_factory(parameters.clients_per_round),
  )


def _tenth_of_noise(parameters, num_clients):
  z = parameters.noise_multiplier / 10
  return _dp_mean(parameters, num_clients, noise_multiplier=z)


def _without_clip(parameters, _, inner=None):
  return aggregators.fixed_denominator_mean_factory(
    parameters.clients_per_round,
    aggregators.gaussian_noise_factory(
      parameters.noise_multiplier * _CLIP, inner
    ),
  )


def _clip_of_mean(parameters, num_clients):
  norm = parameters.clients_per_round * _CLIP
  clipped_sum = aggregators.transformed_factory(
    tff.aggregators.SumFactory(),
    after=lambda total: l2_clip.clip_by_l2_norm(total, norm).value,
  )
  return _without_clip(parameters, num_clients, clipped_sum)


def _audit_broken(build, **kwargs):
  plan = _plan('poisson', num_canaries=1024, noise_multiplier=6.0)
  canaries = _canaries(plan, num_parameters=2048)
  return _audit(plan, canaries, _run(plan, canaries, build, **kwargs))


@pytest.mark.parametrize(
  'broken',
  [
    _clip_of_mean,
    *(
      pytest.param(pipeline, marks=pytest.mark.slow)
      for pipeline in (_without_noise, _tenth_of_noise, _without_clip)
    ),
  ],
)
def test_broken_pipeline_is_caught(broken):
  assert _audit_broken(broken).is_refuted


@pytest.mark.slow
def test_noise_with_a_key_used_twice_is_caught():
  # The state, with the number of the round in it, is not kept, and so each
  # round has the noise of the first one.
  result = _audit_broken(
    functools.partial(_dp_mean, noise_key=(1, 2)), keep_state=False
  )
  assert result.attacks['successive_releases'].is_refuted
  # The releases one by one have all the noise that they should have.
  assert not result.attacks['final_model'].is_refuted


@pytest.mark.slow
def test_what_the_broken_pipelines_have_broken_is_sound():
  assert not _audit_broken(_dp_mean).is_refuted


def _local_noise(parameters, num_clients):
  z, size = parameters.noise_multiplier, parameters.clients_per_round
  return _private(
    aggregators.local_gaussian_mean_factory,
    parameters,
    num_clients,
    sum_factory=aggregators.secure_sum_factory(
      _CLIP, local_noise_stddev=z * _CLIP / math.sqrt(size)
    ),
  )


def _distributed(parameters, num_clients):
  return _private(
    aggregators.distributed_gaussian_mean_factory,
    parameters,
    num_clients,
    min_clients_per_round=parameters.clients_per_round // 2,
    max_clients_per_round=num_clients,
  )


def _adaptive(parameters, _):
  return aggregators.adaptive_dp_mean_factory(
    initial_clipping_norm=_CLIP, **parameters._asdict()
  )


_secure_sum = functools.partial(
  _dp_mean, sum_factory=aggregators.secure_sum_factory(_CLIP)
)
# 0.3 and 0.4 are 0.5 together.
_per_layer = functools.partial(_dp_mean, clipping_norm=[0.3, 0.4])


@pytest.mark.parametrize(
  ('sound', 'sampling'),
  [
    (_dp_mean, 'poisson'),
    *(
      pytest.param(pipeline, sampling, marks=pytest.mark.slow)
      for pipeline, sampling in (
        (_dp_mean, 'random_allocation'),
        (_dp_mean, 'fixed_size'),
        (_dp_mean, 'none'),
        (_secure_sum, 'fixed_size'),
        (_local_noise, 'fixed_size'),
        (_per_layer, 'poisson'),
        (_adaptive, 'poisson'),
        (_distributed, 'fixed_size'),
        # The cohort's size differs between neighbours.
        (_distributed, 'none'),
      )
    ),
  ],
)
def test_sound_pipeline_is_not_refuted(sound, sampling):
  plan = _plan(sampling, num_canaries=256, noise_multiplier=1.0)
  canaries = _canaries(plan, num_parameters=512)
  products = _run(plan, canaries, sound)
  assert not _audit(plan, canaries, products).is_refuted
  # The canaries are there to be seen: those that are in stand out by 7 standard
  # deviations of the difference of the means.
  total = products.sum(axis=0)
  assert total[canaries.is_in].mean() > total[~canaries.is_in].mean()


# One canary in a population whose other clients all send the opposite. A cohort
# of a fixed size that takes the canary up leaves out one of the others, so that
# the sum moves by 2 c.
_NUM_GAMES = 800
_NUM_CLIENTS = 8


def _scores_of_games(plan, sampler_of):
  process = _dp_mean(plan.aggregator_parameters, None).create(
    tff.TensorType(np.float32, [1])
  )
  initial = process.initialize()
  scores = {True: [], False: []}
  for is_in in (True, False):
    for seed in range(_NUM_GAMES):
      ids = [f'client {i}' for i in range(_NUM_CLIENTS - 1)]
      ids += ['canary'] if is_in else []
      values = [
        np.array([_CLIP if c == 'canary' else -_CLIP], np.float32)
        for c in sampler_of(ids, 2 * seed + is_in).sample(1)
      ]
      scores[is_in].append(float(process.next(initial, values).result[0]))
  return np.array(scores[True]), np.array(scores[False])


@pytest.mark.slow
@pytest.mark.parametrize('is_charged_as_drawn', [True, False])
def test_fixed_size_cohorts_charged_as_poisson_are_caught(is_charged_as_drawn):
  plan = PrivacyPlan(
    num_clients=_NUM_CLIENTS,
    clients_per_round=_NUM_CLIENTS - 1,
    num_rounds=1,
    target_delta=1e-2,
    noise_multiplier=1.0,
    sampling='poisson',
    accountant='pld',
  )

  def fixed_size(ids, seed):
    return client_sampling.FixedSizeSampler(
      ids, clients_per_round=plan.clients_per_round, seed=seed
    )

  def poisson(ids, seed):
    return client_sampling.PoissonSampler(
      ids, sampling_prob=plan.sampling_prob, seed=seed
    )

  in_scores, out_scores = _scores_of_games(
    plan, poisson if is_charged_as_drawn else fixed_size
  )
  # The games are independent: Clopper and Pearson's limits of the two rates
  # hold together. With the canary, and without, the mean of a cohort of a fixed
  # size is -2.5/7 and -3.5/7.
  threshold = -3 / 7
  false, true = (
    stats.binomtest(int(np.sum(scores > threshold)), _NUM_GAMES).proportion_ci(
      _CONFIDENCE, method='exact'
    )
    for scores in (out_scores, in_scores)
  )
  curve = audit.compute_trade_off(plan)
  is_refuted = true.low > curve.max_true_positive_rate(false.high)
  assert is_refuted == (not is_charged_as_drawn)
