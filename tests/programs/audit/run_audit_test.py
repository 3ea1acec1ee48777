"""Tests of canaries among the clients of a run, and of its audit."""

import dataclasses
import functools
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.learning import linear_models
from tff_clipping import aggregators, learning
from tff_clipping.privacy import PrivacyPlan, Relation, audit
from tff_clipping.privacy.audit import trade_off
from tff_clipping.programs.audit import canary_clients, run_audit
from tff_clipping.programs.clients import client_sampling, client_store
from tff_clipping.programs.training import training_program, watchers
from tff_clipping.programs.training.checkpoints import Checkpoints


def _plan(sampling='poisson', num_clients=300, noise_multiplier=1.0):
  return PrivacyPlan(
    num_clients=num_clients,
    clients_per_round=num_clients // 2,
    num_rounds=4,
    target_delta=1e-4,
    noise_multiplier=noise_multiplier,
    sampling=sampling,
  )


def _canaries(relation=Relation.ADD_OR_REMOVE_ONE, num_canaries=256):
  return audit.Canaries(
    num_canaries=num_canaries, num_parameters=512, seed=0, relation=relation
  )


def _run_audit(folder, plan, canaries):
  return run_audit.RunAudit(
    folder, plan=plan, canaries=canaries, release_unit=0.25
  )


_CLIENTS = [f'{i}' for i in range(44)]


def test_poisson_cohorts_have_the_canaries_that_are_in(tmp_path):
  canaries = _canaries()
  sampler = _run_audit(tmp_path, _plan(), canaries).build_sampler(
    _CLIENTS, seed=1
  )
  ids = canary_clients.canary_ids(canaries)
  drawn = client_sampling.PoissonSampler(
    [*_CLIENTS, *ids], sampling_prob=0.5, seed=1
  )
  held_out = {ids[i] for i in np.flatnonzero(~canaries.is_in)}
  for round_num in (1, 2):
    cohort = sampler.sample(round_num)
    assert set(cohort) == set(drawn.sample(round_num)) - held_out
    assert len(cohort) < len(drawn.sample(round_num))


def test_fixed_size_cohorts_keep_the_canaries_that_are_held_out(tmp_path):
  canaries = _canaries(Relation.REPLACE_ONE)
  sampler = _run_audit(tmp_path, _plan('fixed_size'), canaries).build_sampler(
    _CLIENTS, seed=1
  )
  assert len(sampler.sample(1)) == 150


def test_canaries_of_which_none_is_held_out_are_refused_before_the_run(
  tmp_path,
):
  with pytest.raises(ValueError, match='the coins of all 2 say in'):
    _run_audit(tmp_path, _plan(), _canaries(num_canaries=2))


def test_sampler_without_canaries_raises():
  sampler = client_sampling.PoissonSampler(['a'], sampling_prob=0.5, seed=0)
  with pytest.raises(ValueError, match='found 0 of 256 canaries'):
    canary_clients.CanarySampler(sampler, _canaries())


def test_store_reads_clients_and_canaries(tmp_path):
  examples = dict(
    x=np.arange(12, dtype=np.float32).reshape(6, 2),
    y=np.arange(6, dtype=np.int32),
  )
  store = client_store.write_client_store(
    tmp_path,
    'test',
    examples=examples,
    partition=[np.array([1, 2]), np.array([5])],
  )
  canaries = _canaries(Relation.REPLACE_ONE)
  clients = canary_clients.CanaryClients(store, canaries)
  assert clients.client_ids[:3] == ('00000', '00001', 'canary 0')
  assert clients.element_spec['canary'] == tf.TensorSpec([], tf.int32)

  read = tf.function(clients.read_client)
  client = read(tf.constant('00000'))
  np.testing.assert_array_equal(client['examples']['x'], [[2, 3], [4, 5]])
  np.testing.assert_array_equal(client['canary'], [0, 0])
  for number in (0, 17, 255):
    canary = read(tf.constant(f'canary {number}'))
    np.testing.assert_array_equal(canary['examples']['x'], [[0, 0]])
    np.testing.assert_array_equal(canary['canary'], canaries.marks[[number]])


def _record(run, plan, canaries, noise_multiplier):
  """Keeps four releases and the models around them."""
  rng = np.random.default_rng(2)
  initial = np.zeros(512)
  run.record_model(0, [initial[:500], initial[500:]])
  total = np.zeros(256)
  for round_num in range(1, 5):
    took_part = (rng.random(256) < plan.sampling_prob) * np.sign(canaries.marks)
    products = 0.25 * (took_part + noise_multiplier * rng.normal(size=256))
    run.record_release(round_num, products)
    total += products
  # Directions are orthonormal for 512 parameters.
  final = sum(t * canaries.direction(i + 1) for i, t in enumerate(total))
  run.record_model(4, [final[:500], final[500:]])
  return total


@pytest.mark.slow
def test_audit_is_of_all_that_was_kept(tmp_path, monkeypatch):
  # All audits here are of one plan.
  monkeypatch.setattr(
    trade_off, 'compute_trade_off', functools.cache(trade_off.compute_trade_off)
  )
  plan, canaries = _plan(), _canaries()
  run = _run_audit(tmp_path, plan, canaries)
  total = _record(run, plan, canaries, 1.0)
  # Another program takes the run up: everything is in the files.
  first = _run_audit(tmp_path, plan, canaries).write()
  written = json.loads((tmp_path / 'audit.json').read_text())
  assert written['num_releases'] == first.num_releases == 4
  assert list(written['attacks']) == [
    'all_releases',
    'successive_releases',
    'final_model',
  ]
  assert not first.is_refuted
  # The final model shows the sum of the releases.
  alone = audit.audit_plan(
    plan, canaries, {'final_model': total}, confidence=1 - 0.05 / 3
  )
  assert first.attacks['final_model'].epsilon_estimate == pytest.approx(
    alone.attacks['final_model'].epsilon_estimate, rel=1e-4
  )
  # A round that is repeated takes the place of the first.
  run.record_release(4, np.zeros(256))
  second = run.write()
  assert second.num_releases == 4
  assert second.attacks['all_releases'] != first.attacks['all_releases']


def test_missing_release_raises(tmp_path):
  run = _run_audit(tmp_path, _plan(), _canaries())
  with pytest.raises(ValueError, match=r'found those of \[\]'):
    run.write()
  run.record_release(2, np.zeros(256))
  with pytest.raises(ValueError, match=r'found those of \[2\]'):
    run.write()


def test_a_process_that_measures_no_products_is_named(tmp_path):
  run = _run_audit(tmp_path, _plan(), _canaries())
  # Aggregators without measurements measure ().
  for measured in ((), {'clipping_norm': 1.0}):
    work = watchers.ClientsWork(['a'], {'aggregator': measured})
    done = watchers.Round(1, {}, model=None, work=work)
    with pytest.raises(ValueError, match='come from `add_canary_products`'):
      run.measure(done)


def test_training_program_is_audited(tmp_path):
  # 64 parameters, 64 canaries and 8 clients, four rounds of half of them.
  rng = np.random.default_rng(3)
  store = client_store.write_client_store(
    tmp_path / 'clients',
    'test',
    examples=dict(
      x=rng.normal(size=[16, 15]).astype(np.float32),
      y=rng.integers(4, size=16).astype(np.int32),
    ),
    partition=np.split(np.arange(16), 8),
  )
  plan = PrivacyPlan(
    num_clients=72,
    clients_per_round=36,
    num_rounds=4,
    target_delta=1e-3,
    noise_multiplier=0.5,
  )
  canaries = audit.Canaries(num_canaries=64, num_parameters=64, seed=0)
  run, claims_more = (
    run_audit.RunAudit(
      tmp_path / 'audit',
      plan=dataclasses.replace(plan, noise_multiplier=claimed),
      canaries=canaries,
      release_unit=0.5 / plan.clients_per_round,
    )
    for claimed in (0.5, 20.0)
  )
  model_fn = linear_models.layers_fn(
    lambda: [tf.keras.layers.Dense(4, kernel_initializer='zeros')],
    num_features=15,
    is_classifier=True,
  )
  process = learning.build_fed_avg(
    learning.add_canaries(model_fn, canaries, gradient_norm=250.0),
    local_steps=2,
    batch_size=2,
    client_learning_rate=0.1,
    # One outcome, with the key of the noise: a sound run is refuted once in
    # 1,000, and one that claims more is not in one of ten.
    seed=0,
    model_aggregator=aggregators.add_canary_products(
      aggregators.dp_mean_factory(
        clipping_norm=0.5,
        noise_key=(1, 2),
        **plan.aggregator_parameters._asdict(),
      ),
      canaries,
    ),
    client_store=canary_clients.CanaryClients(store, canaries),
  )
  result = training_program.TrainingProgram(
    process=process,
    sampler=run.build_sampler(store.client_ids, seed=2),
    num_rounds=4,
    evaluate=lambda weights: dict(test_accuracy=0.0, test_loss=0.0),
    checkpoints=Checkpoints(tmp_path / 'checkpoints'),
    watchers=[run],
  ).run()
  run.record_model(
    result.round_num, process.get_model_weights(result.state).trainable
  )
  found = run.write(confidence=0.999)
  assert found.num_releases == 4
  assert list(found.attacks)[-1] == 'final_model'
  assert not found.is_refuted
  # With so little noise, nobody may claim 40 times as much.
  assert claims_more.write(confidence=0.999).is_refuted
