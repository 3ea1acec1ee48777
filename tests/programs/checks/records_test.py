"""Tests of what compares a mechanism's record with a plan."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.programs import noised_scalar
from tff_clipping import aggregators, privacy
from tff_clipping.aggregators.server_noise import strategy_digest
from tff_clipping.mechanism import ADAPTS, Mechanism
from tff_clipping.programs.checks import records

_PLAN = privacy.PrivacyPlan(**noised_scalar.UNIT_NOISE)
_NOISE = _PLAN.aggregator_parameters._asdict()
_FIXED_SIZE = dataclasses.replace(_PLAN, sampling='fixed_size')
_STRATEGY = privacy.blt_strategy(
  num_rounds=8, participation=privacy.Participation(min_separation=3)
)
_CORRELATED_PLAN = privacy.CorrelatedNoisePlan(
  **noised_scalar.UNIT_NOISE, strategy=_STRATEGY, min_separation=3
)
_GAUSSIAN = Mechanism(
  kind='gaussian', clipping_norm=0.5, noise_multiplier=1.0, clients_per_round=8
)
_CORRELATED = dataclasses.replace(
  _GAUSSIAN,
  kind='correlated',
  strategy=strategy_digest(_STRATEGY.recurrence),
)
_SHARES = dataclasses.replace(
  _GAUSSIAN, kind='shares', min_clients=8, max_clients=8
)
_DISTRIBUTED = dataclasses.replace(_SHARES, kind='distributed')
_BY_PLD = dataclasses.replace(_FIXED_SIZE, accountant='pld')
_ALL = dataclasses.replace(_PLAN, num_clients=8, sampling='none')


def _metrics(record):
  return collections.OrderedDict(
    aggregator=collections.OrderedDict(
      mechanism=record.to_json().encode(), clipping_norm=np.float32(0.5)
    )
  )


@pytest.mark.parametrize(
  ('record', 'plan'),
  [
    (_GAUSSIAN, _PLAN),
    # A plan has no clipping norm.
    (dataclasses.replace(_GAUSSIAN, clipping_norm=ADAPTS), _PLAN),
    (dataclasses.replace(_GAUSSIAN, noise_multiplier=1 + 1e-10), _PLAN),
    (_GAUSSIAN, _FIXED_SIZE),
    (_CORRELATED, _CORRELATED_PLAN),
    (_SHARES, _FIXED_SIZE),
    (_DISTRIBUTED, _FIXED_SIZE),
    # Larger shares, or more of them, where devices may not arrive.
    (dataclasses.replace(_DISTRIBUTED, min_clients=5), _FIXED_SIZE),
    (dataclasses.replace(_DISTRIBUTED, max_clients=9), _FIXED_SIZE),
  ],
)
def test_the_record_of_the_plan_is_taken(record, plan):
  assert records.check_mechanism(_metrics(record), plan) == record


@pytest.mark.parametrize(
  ('record', 'plan', 'message'),
  [
    (_CORRELATED, _PLAN, '`kind`, that of a PrivacyPlan'),
    (_GAUSSIAN, _CORRELATED_PLAN, '`kind`, that of a CorrelatedNoisePlan'),
    (_SHARES, _CORRELATED_PLAN, '`kind`'),
    (
      dataclasses.replace(_GAUSSIAN, noise_multiplier=0.999),
      _PLAN,
      r'`noise_multiplier`, 1\.0, in its mechanism record, found 0\.999',
    ),
    # More noise than was planned is another plan.
    (
      dataclasses.replace(_GAUSSIAN, noise_multiplier=1 + 1e-8),
      _PLAN,
      '`noise_multiplier`',
    ),
    (
      dataclasses.replace(_GAUSSIAN, clients_per_round=4),
      _PLAN,
      r'`clients_per_round`, 8, in its mechanism record, found 4\.0',
    ),
    (
      dataclasses.replace(_CORRELATED, strategy='00'),
      _CORRELATED_PLAN,
      'the `strategy` of the plan',
    ),
    # Eight clients would have the noise of nine less one, or too few shares.
    (
      dataclasses.replace(_DISTRIBUTED, min_clients=9, max_clients=9),
      _FIXED_SIZE,
      '`min_clients`, at most 8, in its mechanism record, found 9',
    ),
    (
      dataclasses.replace(_DISTRIBUTED, min_clients=7, max_clients=7),
      _FIXED_SIZE,
      '`max_clients`, at least 8',
    ),
    # Its plan counts on 7 to 9 clients, of neighbours too.
    (_DISTRIBUTED, _ALL, '`min_clients`, at most'),
    (_DISTRIBUTED, _BY_PLD, "must be 'rdp' for a mechanism in integers"),
    # Of other samplings the cohorts have no bounds.
    (_SHARES, _PLAN, "`sampling` must be 'fixed_size' where the noise"),
  ],
)
def test_another_record_is_refused(record, plan, message):
  with pytest.raises(ValueError, match=message):
    records.check_mechanism(_metrics(record), plan)


def test_the_type_tells_whether_there_is_a_record():
  vector = tff.TensorType(np.float32, [2])
  private = aggregators.dp_mean_factory(
    clipping_norm=1.0, noise_multiplier=1.0, clients_per_round=8
  )
  assert records.has_record(private.create(vector))
  clipped = aggregators.clipped_mean_factory(clipping_norm=1.0)
  assert not records.has_record(clipped.create(vector))
  inside = aggregators.difference_clipping_factory(1.0, private)
  assert not records.has_record(inside.create(vector))


_AGGREGATORS = {
  'adaptive': aggregators.adaptive_dp_mean_factory(
    initial_clipping_norm=0.5, below_count_stddev=2.0, **_NOISE
  ),
  'distributed': aggregators.distributed_gaussian_mean_factory(
    clipping_norm=0.5, **_NOISE
  ),
}


@pytest.mark.parametrize('name', _AGGREGATORS)
@pytest.mark.parametrize('figure', ['clipping_norm', 'noise_stddev'])
def test_a_figure_under_the_name_of_another_is_refused(name, figure):
  process = _AGGREGATORS[name].create(tff.TensorType(np.float32, [3]))
  clients = [np.ones(3, np.float32)] * 8
  output = process.next(process.initialize(), clients)
  metrics = collections.OrderedDict(aggregator=output.measurements)
  assert records.check_mechanism(metrics, _FIXED_SIZE) is not None
  metrics['aggregator'][figure] *= 2
  with pytest.raises(ValueError, match=f'measure the `{figure}`|`noise_stddev'):
    records.check_mechanism(metrics, _FIXED_SIZE)
