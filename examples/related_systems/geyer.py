"""Geyer's experiment (Geyer et al. 2017), with a norm that is paid for.

  python -m examples.related_systems.geyer --data_dir=DIR --clients=1000

What it shows: client-level DP needs many clients. Each has two shards of MNIST,
sorted by label. Geyer clips to the exact median of the cohort's norms, which no
plan charges for. Here c follows a noisy median (Andrew et al. 2021), which the
plan charges for.

What it promises: (8, δ) to each client, added or removed, against whoever gets
the models, by Poisson sampling (`PrivacyPlan`).

What it does not promise: anything against the server, or against whoever knows
the seed of the cohorts, which is `--seed` here. A run that is to be private
draws a secret seed and keeps a ledger: docs/private_run.md.

With `--data_dir` the run is that of docs/related.md. Without, it is a short run
on the embedded digits.
"""

import argparse
import tempfile
from typing import NamedTuple

import numpy as np
from tff_clipping import aggregators, learning, privacy, programs, runtime

from tasks.data import registry
from tasks.data.partitions import PartitionConfig
from tasks.models import keras_models, run_models

_COMMIT = '44967cd3'


class Scale(NamedTuple):
  """P, δ, a client's examples, T, and the test accuracy of three seeds."""

  clients_per_round: int
  target_delta: float
  examples_per_client: int
  num_rounds: int
  published: str


# By the number of clients.
_MNIST = {
  100: Scale(50, 1e-3, 600, 50, '36.76 ± 0.95 %'),
  1000: Scale(200, 1e-5, 60, 50, '90.37 ± 1.03 %'),
  10_000: Scale(500, 1e-6, 6, 50, '88.57 ± 0.24 %'),
}
_DIGITS = {100: Scale(50, 1e-3, 40, 20, 'nothing')}


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser()
  parser.add_argument('--data_dir', help='the folder of mnist.npz')
  parser.add_argument('--clients', type=int, choices=[*_MNIST], default=100)
  parser.add_argument('--seed', type=int, default=0)
  flags = parser.parse_args(argv)
  scales = _MNIST if flags.data_dir else _DIGITS
  num_clients = flags.clients if flags.data_dir else 100
  scale = scales[num_clients]
  runtime.set_default_context()
  task = registry.create_task(
    'mnist' if flags.data_dir else 'embedded_digits',
    PartitionConfig(
      'shards',
      num_clients=num_clients,
      examples_per_client=scale.examples_per_client,
      shards_per_client=2,
      seed=flags.seed,
    ),
    data_dir=flags.data_dir,
  )
  plan = privacy.PrivacyPlan.from_target_epsilon(
    num_clients=num_clients,
    clients_per_round=scale.clients_per_round,
    num_rounds=scale.num_rounds,
    target_epsilon=8.0,
    target_delta=scale.target_delta,
  )

  def create_model():
    return keras_models.create_mlp(
      task.input_shape, task.num_classes, seed=flags.seed
    )

  sampler = programs.build_private_sampler(
    plan, task.client_ids, seed=flags.seed
  )
  with tempfile.TemporaryDirectory() as folder:
    process = learning.build_fed_avg(
      run_models.build_model_fn(create_model, task.element_spec),
      local_steps=10,
      batch_size=10,
      client_learning_rate=0.3,
      client_store=task.write_client_store(folder),
      seed=flags.seed,
      model_aggregator=aggregators.adaptive_dp_mean_factory(
        initial_clipping_norm=0.5, **plan.aggregator_parameters._asdict()
      ),
    )
    state = process.initialize()
    for round_num in range(1, scale.num_rounds + 1):
      state = process.next(state, sampler.sample(round_num)).state
  model = create_model()
  process.get_model_weights(state).assign_weights_to(model)
  found = model.predict(task.test['x'], verbose=0).argmax(axis=1)
  print(
    f"Geyer's experiment on {task.name}: "
    f'{100 * np.mean(found == task.test["y"]):.2f} % with {num_clients} '
    f'clients after {scale.num_rounds} rounds, ε = {plan.epsilon:.4g} (δ = '
    f'{plan.target_delta:g}, z = {plan.noise_multiplier:.3f}); published: '
    f'{scale.published} (commit {_COMMIT})'
  )


if __name__ == '__main__':
  main()
