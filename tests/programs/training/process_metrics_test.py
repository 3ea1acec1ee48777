"""Tests of what programs keep of the metrics of learning processes."""

import collections
import os

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import aggregators, learning, privacy
from tff_clipping.mechanism import Mechanism
from tff_clipping.programs.clients.client_sampling import (
  FixedSizeSampler,
  build_private_sampler,
)
from tff_clipping.programs.training import (
  process_metrics,
)
from tff_clipping.programs.training.checkpoints import Checkpoints
from tff_clipping.programs.training.metrics_files import MetricsFiles
from tff_clipping.programs.training.training_program import TrainingProgram

_IDS = ('0', '1', '2', '3')
_SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, 2], tf.float32), y=tf.TensorSpec([None, 1], tf.float32)
)


def _model_fn():
  # Zero, since a drawn model can be so near to the answer that a client's
  # update is shorter than the threshold.
  layer = tf.keras.layers.Dense(1, input_shape=(2,), kernel_initializer='zeros')
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential([layer]),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=_SPEC,
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


def _our_process(aggregator, measure_updates):
  return learning.build_fed_avg(
    _model_fn,
    local_steps=1,
    batch_size=2,
    client_learning_rate=0.01,
    model_aggregator=aggregator,
    measure_updates=measure_updates,
  )


def _run(folder, process, client_value, sampler=None, **kwargs):
  TrainingProgram(
    process=process,
    sampler=sampler or FixedSizeSampler(_IDS, clients_per_round=3, seed=0),
    client_value=client_value,
    num_rounds=2,
    evaluate=lambda weights: dict(test_accuracy=0.5, test_loss=1.0),
    checkpoints=Checkpoints(folder / 'checkpoints', keep=2),
    watchers=[
      MetricsFiles(
        folder / 'metrics.csv', tensorboard_dir=folder / 'tensorboard'
      )
    ],
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
  # TensorBoard has them too.
  found = set()
  for file in os.scandir(tmp_path / 'tensorboard'):
    for event in tf.compat.v1.train.summary_iterator(file.path):
      found |= {value.tag for value in event.summary.value}
  assert 'aggregator/clipping_norm' in found


@pytest.mark.parametrize('measured_by', ['process', 'aggregator'])
@pytest.mark.slow
def test_norms_of_updates_that_are_measured_are_summarized(
  tmp_path, measured_by
):
  is_process = measured_by == 'process'
  mean = aggregators.clipped_mean_factory(clipping_norm=1.0)
  if not is_process:
    mean = aggregators.add_update_norm_measurements(mean)
  metrics = _run(tmp_path, _our_process(mean, is_process), _client)[1:]
  assert (metrics['update_norm_mean'] > 0).all()
  assert (metrics['update_norm_max'] >= metrics['update_norm_mean']).all()
  assert metrics['update_norm_std'].notna().all()
  assert metrics['clipped_fraction'].between(0, 1).all()


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
  with privacy.PrivacyLedger(tmp_path / 'ledger.jsonl', plan) as ledger:
    metrics = _run(
      tmp_path,
      _stock_process(aggregator),
      lambda client_id: _client(client_id).batch(2),
      sampler=build_private_sampler(plan, _IDS, seed=0),
      ledger=ledger,
    )
  assert metrics['aggregator/clipping_norm'][1] == 0.5
  assert metrics['aggregator/clipping_norm'][2] != 0.5
  assert (metrics['aggregator/noise_stddev'][1:] > 0).all()
  # Those of the record, and nothing else.
  assert {name for name in metrics if '/' in name} == {
    'aggregator/clipping_norm',
    'aggregator/noise_stddev',
    'aggregator/bits_noise_stddev',
  }
  assert metrics['update_norm_mean'].isna().all()
  assert metrics['clipped_fraction'].isna().all()


def test_without_a_record_nothing_is_public():
  measured = collections.OrderedDict(
    clipping_norm=np.float32(0.5), noise_stddev=np.float32(1.0)
  )
  # By the names of measurements, or a record elsewhere, nothing is.
  record = Mechanism(
    kind='gaussian',
    clipping_norm=0.5,
    noise_multiplier=2.0,
    clients_per_round=4,
    public=('clipping_norm',),
  ).to_json()
  for metrics in (
    collections.OrderedDict(aggregator=measured),
    collections.OrderedDict(aggregator=measured, client_work=measured),
    collections.OrderedDict(mechanism=record, aggregator=measured),
    collections.OrderedDict(
      aggregator=collections.OrderedDict(
        inner={'mechanism': record, **measured}
      )
    ),
  ):
    assert not process_metrics.flatten_metrics(metrics, is_private=True)
  with_record = collections.OrderedDict(
    aggregator=collections.OrderedDict(
      mechanism=record, clipping=measured, **measured
    ),
    client_work=measured,
    finalizer=measured,
  )
  flat = process_metrics.flatten_metrics(with_record, is_private=True)
  assert flat == {'aggregator/clipping_norm': 0.5}


def test_what_is_not_one_number_is_left_out():
  metrics = collections.OrderedDict(
    client_work=collections.OrderedDict(update_norm=np.ones(3)),
    aggregator=collections.OrderedDict(
      name='mean', mean_value=(), one=np.array([2], np.int32)
    ),
  )
  flat = process_metrics.flatten_metrics(metrics, is_private=False)
  assert flat == {'aggregator/one': 2.0}
  single = process_metrics.flatten_metrics(np.float32(3), is_private=False)
  assert single == {'metrics': 3.0}
  assert process_metrics.flatten_metrics(np.float32(3), is_private=True) == {}


def test_an_empty_cohort_has_no_norms():
  metrics = collections.OrderedDict(
    client_work=collections.OrderedDict(update_norm=np.ones(0)),
    aggregator=collections.OrderedDict(clipped_count=np.int32(0)),
  )
  assert process_metrics.summarize_updates(metrics, 0) == {}


class _Recalls(tf.keras.metrics.Metric):
  def __init__(self, name='recalls', **kwargs):
    super().__init__(name, **kwargs)
    self.sums = self.add_weight('sums', [3], initializer='zeros')

  def update_state(self, y_true, y_pred, sample_weight=None):
    self.sums.assign_add([1.0, 2.0, 3.0])

  def reset_state(self):
    self.sums.assign(tf.zeros([3]))

  def result(self):
    return self.sums


@pytest.mark.parametrize('metric', [_Recalls, None])
def test_metrics_that_are_no_numbers_are_said_to_be_left_out(metric, recwarn):
  def model_fn():
    return tff.learning.models.from_keras_model(
      tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))]),
      loss=tf.keras.losses.MeanSquaredError(),
      input_spec=_SPEC,
      metrics=[metric()] if metric else [],
    )

  process = tff.learning.algorithms.build_unweighted_fed_avg(
    model_fn, tff.learning.optimizers.build_sgdm(0.01)
  )
  process_metrics.warn_of_vectors(process)
  found = [str(w.message) for w in recwarn if 'left out' in str(w.message)]
  assert len(found) == bool(metric)
  assert all('client_work/train/recalls' in message for message in found)
