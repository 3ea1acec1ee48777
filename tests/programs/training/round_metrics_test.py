"""Tests of the metrics of learning processes, and of what is kept of them."""

import collections

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import linear_models
from tff_clipping import aggregators, privacy, programs
from tff_clipping.mechanism import Mechanism
from tff_clipping.programs.training import round_metrics

_IDS = ('0', '1', '2', '3')
# Zero, since a drawn model can be so near to the answer that a client's update
# is shorter than the threshold.
_model_fn = linear_models.layers_fn(
  lambda: [tf.keras.layers.Dense(1, kernel_initializer='zeros')],
  num_features=2,
)


def _client(client_id):
  x = np.full([4, 2], 1 + int(client_id), np.float32)
  return tf.data.Dataset.from_tensor_slices(
    collections.OrderedDict(x=x, y=x[:, :1])
  )


def _stock_process(aggregator):
  return tff.learning.algorithms.build_unweighted_fed_avg(
    _model_fn,
    tff.learning.optimizers.build_sgdm(0.01),
    model_aggregator=aggregator,
  )


def _run(folder, process, client_value, sampler=None, **kwargs):
  programs.TrainingProgram(
    process=process,
    sampler=sampler
    or programs.FixedSizeSampler(_IDS, clients_per_round=3, seed=0),
    client_value=client_value,
    num_rounds=2,
    evaluate=lambda weights: dict(test_accuracy=0.5, test_loss=1.0),
    checkpoints=programs.Checkpoints(folder / 'checkpoints'),
    watchers=[programs.MetricsFiles(folder / 'metrics.csv')],
    **kwargs,
  ).run()
  return pd.read_csv(folder / 'metrics.csv')


@pytest.mark.slow
def test_the_metrics_of_tffs_own_process_are_kept(tmp_path):
  metrics = _run(
    tmp_path,
    _stock_process(aggregators.clipped_mean_factory(clipping_norm=1e-3)),
    lambda client_id: _client(client_id).batch(2),
  )
  assert (metrics['client_work/train/loss'][1:] > 0).all()
  assert metrics['aggregator/clipped_count'][1:].tolist() == [3, 3]
  assert metrics['clipped_fraction'][1:].tolist() == [1, 1]
  assert 'finalizer/update_non_finite' in metrics
  assert metrics['aggregator/clipping_norm'][1:].tolist() == pytest.approx(
    [1e-3, 1e-3]
  )


def test_nothing_exact_is_kept_of_a_private_run(tmp_path):
  plan = privacy.PrivacyPlan.from_noise_multiplier(
    num_clients=4,
    clients_per_round=2,
    num_rounds=2,
    noise_multiplier=0.9,
    target_delta=1e-2,
  )
  # Norms, which are exact, are measured in vain.
  aggregator = tff.learning.add_debug_measurements(
    aggregators.adaptive_dp_mean_factory(
      initial_clipping_norm=0.5,
      below_count_stddev=2.0,
      **plan.aggregator_parameters._asdict(),
    )
  )
  process = _stock_process(aggregator)
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    metrics = _run(
      tmp_path,
      process,
      lambda client_id: _client(client_id).batch(2),
      sampler=programs.build_private_sampler(plan, _IDS, seed=0),
      ledger=ledger,
    )
    assert not ledger.caveats
  assert metrics['aggregator/clipping_norm'][1] == 0.5
  assert metrics['aggregator/clipping_norm'][2] != 0.5
  assert (metrics['aggregator/noise_stddev'][1:] > 0).all()
  # Those of the record, and nothing else.
  expected = {
    'aggregator/clipping_norm',
    'aggregator/noise_stddev',
    'aggregator/bits_noise_stddev',
  }
  assert {name for name in metrics if '/' in name} == expected
  assert metrics['update_norm_mean'].isna().all()
  assert metrics['clipped_fraction'].isna().all()
  # Nor does a process for a loop of TFF give anything else back.
  with privacy.PrivacyLedger(tmp_path / 'other.jsonl', plan) as ledger:
    private = programs.PrivateProcess(
      process,
      programs.build_private_sampler(plan, _IDS, seed=1),
      ledger,
      programs.Checkpoints(tmp_path / 'outcomes'),
      client_value=lambda client_id: _client(client_id).batch(2),
    )
    assert set(private.next(private.initialize(), 1).metrics) == expected


def test_what_the_record_lists_is_public_and_nothing_else():
  measured = collections.OrderedDict(
    clipping_norm=np.float32(0.5), noise_stddev=np.float32(1.0)
  )
  record = Mechanism(
    kind='gaussian',
    clipping_norm=0.5,
    noise_multiplier=2.0,
    clients_per_round=4,
    public=('clipping_norm',),
  )
  metrics = collections.OrderedDict(
    aggregator=collections.OrderedDict(
      mechanism=record.to_json(), clipping=measured, **measured
    ),
    client_work=measured,
    finalizer=measured,
  )
  expected = {'aggregator/clipping_norm': 0.5}
  flat = round_metrics.flatten_metrics(metrics, is_private=True)
  assert flat == round_metrics.released_values(metrics) == expected


def test_what_is_not_one_number_is_left_out():
  metrics = collections.OrderedDict(
    client_work=collections.OrderedDict(update_norm=np.ones(3)),
    aggregator=collections.OrderedDict(
      name='mean', mean_value=(), one=np.array([2], np.int32)
    ),
  )
  flat = round_metrics.flatten_metrics(metrics, is_private=False)
  assert flat == {'aggregator/one': 2.0}
  single = round_metrics.flatten_metrics(np.float32(3), is_private=False)
  assert single == {'metrics': 3.0}
  assert round_metrics.flatten_metrics(np.float32(3), is_private=True) == {}


def test_norms_of_updates_are_summarized_whoever_measures_them():
  updates = [np.float32([norm, 0]) for norm in (0.5, 2.0, 3.5)]
  mean = aggregators.add_update_norm_measurements(
    aggregators.clipped_mean_factory(clipping_norm=1.0)
  ).create(tff.TensorType(np.float32, [2]))
  aggregator = mean.next(mean.initialize(), updates).measurements
  # As `build_fed_avg` does with `measure_updates`.
  client_work = {'update_norm': np.float32([0.5, 2.0, 3.5])}
  for metrics in (
    {'aggregator': aggregator},
    {'client_work': client_work, 'aggregator': {'clipped_count': np.int32(2)}},
  ):
    assert round_metrics.summarize_updates(metrics, 3) == pytest.approx(
      dict(
        update_norm_mean=2.0,
        update_norm_std=1.5**0.5,
        update_norm_max=3.5,
        clipped_fraction=2 / 3,
      )
    )


def test_an_empty_cohort_has_no_norms():
  metrics = collections.OrderedDict(
    client_work=collections.OrderedDict(update_norm=np.ones(0)),
    aggregator=collections.OrderedDict(clipped_count=np.int32(0)),
  )
  assert round_metrics.summarize_updates(metrics, 0) == {}
