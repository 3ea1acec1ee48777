"""Audits a pipeline of TFF's own federated averaging, and a broken one."""

import tempfile

import numpy as np
from tff_clipping import aggregators, learning, programs, runtime
from tff_clipping.privacy import PrivacyPlan, audit
import tensorflow as tf
import tensorflow_federated as tff

_NUM_FEATURES, _NUM_CLASSES = 66, 4
_CLIPPING_NORM = 0.5
_NUM_CANARIES = 128
_CLIENTS = [f'client {i}' for i in range(16)]

# For clients and canaries together. Cohorts are half of the population.
_PLAN = PrivacyPlan(
  num_clients=len(_CLIENTS) + _NUM_CANARIES,
  clients_per_round=72,
  num_rounds=2,
  target_delta=1e-3,
  noise_multiplier=4.0,
  sampling='poisson',
)


def _model_fn() -> tff.learning.models.VariableModel:
  inputs = tf.keras.Input((_NUM_FEATURES,))
  return tff.learning.models.from_keras_model(
    tf.keras.Model(inputs, tf.keras.layers.Dense(_NUM_CLASSES)(inputs)),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=(
      tf.TensorSpec([None, _NUM_FEATURES]),
      tf.TensorSpec([None], tf.int32),
    ),
  )


def _client(seed: int) -> tf.data.Dataset:
  rng = np.random.default_rng(seed)
  x = rng.normal(size=(8, _NUM_FEATURES)).astype(np.float32)
  y = rng.integers(_NUM_CLASSES, size=8).astype(np.int32)
  return tf.data.Dataset.from_tensor_slices((x, y)).batch(4)


def _audit(
  model_aggregator: tff.aggregators.UnweightedAggregationFactory,
) -> audit.AuditResult:
  """Trains with canaries, and returns what they show."""
  canaries = audit.Canaries(
    num_canaries=_NUM_CANARIES,
    num_parameters=(_NUM_FEATURES + 1) * _NUM_CLASSES,
    seed=0,  # Who is a canary, and who is held out. Fresh for real data.
    relation=_PLAN.relation,
  )
  process = tff.learning.algorithms.build_unweighted_fed_avg(
    # Two steps of 0.1 with a gradient of 250: a hundred times the norm.
    learning.add_canaries(_model_fn, canaries, gradient_norm=250.0),
    tff.learning.optimizers.build_sgdm(0.1),
    model_aggregator=aggregators.add_canary_products(
      model_aggregator, canaries
    ),
  )
  data = {
    name: learning.mark_dataset(_client(i)) for i, name in enumerate(_CLIENTS)
  }
  canary_ids = programs.canary_ids(canaries)
  for name, mark in zip(canary_ids, canaries.marks, strict=True):
    if mark:
      data[name] = learning.canary_dataset(_model_fn, mark, num_batches=2)

  with tempfile.TemporaryDirectory() as folder:
    run = programs.RunAudit(
      folder,
      plan=_PLAN,
      canaries=canaries,
      # TFF's clients send minus the change of their model.
      release_unit=-_CLIPPING_NORM / _PLAN.clients_per_round,
    )
    sampler = run.build_sampler(_CLIENTS, seed=1)
    state = process.initialize()
    run.record_model(0, process.get_model_weights(state).trainable)
    for round_num in range(1, _PLAN.num_rounds + 1):
      cohort = sampler.sample(round_num)
      output = process.next(state, [data[name] for name in cohort])
      state = output.state
      run.record_release(
        round_num, output.metrics['aggregator']['canary_products']
      )
    run.record_model(round_num, process.get_model_weights(state).trainable)
    return run.write(confidence=0.999)


def main() -> None:
  runtime.set_default_context()
  private = aggregators.dp_mean_factory(
    clipping_norm=_CLIPPING_NORM,
    noise_multiplier=_PLAN.noise_multiplier,
    clients_per_round=_PLAN.clients_per_round,
  )
  without_clip = aggregators.fixed_denominator_mean_factory(
    _PLAN.clients_per_round,
    aggregators.gaussian_noise_factory(_PLAN.noise_multiplier * _CLIPPING_NORM),
  )
  print(f'claimed epsilon {_PLAN.epsilon:.2f}')
  print('private pipeline refuted:', _audit(private).is_refuted)
  result = _audit(without_clip)
  print('pipeline without a clip refuted:', result.is_refuted)
  print(f'its epsilon, at least {result.gaussian_epsilon_lower_bound:.2f}')


if __name__ == '__main__':
  main()
