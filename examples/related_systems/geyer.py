"""The experiment of Geyer et al. 2017, "Differentially private FL".

  python -m examples.related_systems.geyer --num_clients=1000 --data_dir=DIR

What it shows: at one ε, N decides how much is learnt. A hundred clients learn
little at ε = 8, and a thousand learn well.

What it promises: (ε, δ) to each client, for adding or removing all of its data,
against everybody who sees the models. Geyer et al. clip to the median of the
norms of the cohort. An exact median depends on every client, and no plan
charges for it. Here c follows a noisy median (Andrew et al. 2021), which the
noise multiplier z of the plan pays for, together with the sum.

What it does not promise: anything against the server, which sees each update.
The cohorts are a secret: a real run draws their seed afresh, and tells nobody.
Here `--seed` gives it. The clients are made up by a split of the images.

With `--data_dir` the run is that of docs/related.md: MNIST, two shards for each
client. Without, it is a short run of 100 clients on the embedded digits.
"""

import argparse
import dataclasses
import tempfile

import numpy as np
from tff_clipping import aggregators, learning, privacy, programs, runtime

from tasks.data import registry
from tasks.data.partitions import PartitionConfig
from tasks.models import keras_models, tff_model

_COMMIT = '44967cd3'
_EPSILON = 8.0


@dataclasses.dataclass(frozen=True)
class Scale:
  """T, P, δ, the images, η_l, and the test accuracy of three seeds."""

  task: str
  num_rounds: int
  clients_per_round: int
  delta: float
  num_examples: int
  learning_rate: float
  published: str


_MNIST = {
  100: Scale('mnist', 50, 50, 1e-3, 60_000, 0.3, '36.76 ± 0.95 %'),
  1000: Scale('mnist', 50, 200, 1e-5, 60_000, 0.3, '90.37 ± 1.03 %'),
  10_000: Scale('mnist', 50, 500, 1e-6, 60_000, 0.3, '88.57 ± 0.24 %'),
}
_DIGITS = Scale('embedded_digits', 10, 50, 1e-3, 4000, 0.1, 'nothing')


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser()
  parser.add_argument('--data_dir', help='the folder with the files of MNIST')
  parser.add_argument('--num_clients', type=int, default=100, choices=_MNIST)
  parser.add_argument('--seed', type=int, default=0)
  flags = parser.parse_args(argv)
  scale = _MNIST[flags.num_clients] if flags.data_dir else _DIGITS
  runtime.set_default_context()
  task = registry.create_task(
    scale.task,
    # Each image is used once.
    PartitionConfig(
      'shards',
      num_clients=flags.num_clients,
      examples_per_client=scale.num_examples // flags.num_clients,
      shards_per_client=2,
      seed=flags.seed,
    ),
    data_dir=flags.data_dir,
  )

  def create_model():
    return keras_models.create_mlp(
      task.input_shape, task.num_classes, seed=flags.seed
    )

  # z for T rounds that each client joins with probability P / N.
  plan = privacy.PrivacyPlan.from_target_epsilon(
    num_clients=flags.num_clients,
    clients_per_round=scale.clients_per_round,
    num_rounds=scale.num_rounds,
    target_epsilon=_EPSILON,
    target_delta=scale.delta,
    sampling='poisson',
    accountant='rdp',
  )
  sampler = programs.build_private_sampler(
    plan, task.client_ids, seed=flags.seed
  )
  with tempfile.TemporaryDirectory() as folder:
    process = learning.build_fed_avg(
      tff_model.build_model_fn(create_model, task.element_spec),
      local_steps=10,
      batch_size=10,
      client_learning_rate=scale.learning_rate,
      client_store=task.write_client_store(folder),
      seed=flags.seed,
      model_aggregator=aggregators.adaptive_dp_mean_factory(
        initial_clipping_norm=0.5,
        target_quantile=0.5,
        **plan.aggregator_parameters._asdict(),
      ),
    )
    state = process.initialize()
    for round_num in range(1, plan.num_rounds + 1):
      output = process.next(state, sampler.sample(round_num))
      state = output.state
  model = create_model()
  process.get_model_weights(state).assign_weights_to(model)
  found = model.predict(task.test['x'], verbose=0).argmax(axis=1)
  clipping_norm = float(output.metrics['aggregator']['clipping_norm'])
  print(
    f'{flags.num_clients} clients of {task.name}: '
    f'{100 * np.mean(found == task.test["y"]):.2f} % after {plan.num_rounds} '
    f'rounds, ε = {plan.epsilon:.4g} (δ = {scale.delta:g}, z = '
    f'{plan.noise_multiplier:.3f}, c = {clipping_norm:.2f} at last); published '
    f'on mnist: {scale.published} (commit {_COMMIT})'
  )


if __name__ == '__main__':
  main()
