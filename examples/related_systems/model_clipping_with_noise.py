"""Model clipping with noise (Wei et al. 2020), beside difference clipping.

  python -m examples.related_systems.model_clipping_with_noise --data_dir=DIR

What it shows: clients that clip the whole model, and not its difference to the
global model, need noise in proportion to the length of a model. c is 9 here,
half of the norm of the initial model, where clipped updates have 0.37. The
noise on the mean then is 15 times as long as c, and nothing is learnt.

What it promises: (ε, δ) to each client, for replacing all of its data, against
everybody who sees the models. Clients send clip(x_i, c). Replacing a client
moves the sum by at most 2 c, whatever the global model is.

What it does not promise: anything against the server, which sees each model.
The sum is divided by P, so the cohort has exactly P clients: of n others the
model itself would be multiplied by n / P. The cohorts are a secret: a real run
draws their seed afresh, and tells nobody. Here `--seed` gives it.

With `--data_dir` the run is that of docs/related.md: the even images of MNIST.
Without, it is a short run on the embedded digits.
"""

import argparse
import dataclasses
import tempfile

import numpy as np
from tff_clipping import aggregators, learning, privacy, programs, runtime

from tasks.data import registry
from tasks.data.partitions import PartitionConfig
from tasks.models import keras_models, run_models

# Test accuracies on MNIST, three seeds, by ε.
_PUBLISHED = {1.5: '6.39 ± 4.41 %', 5.0: '9.83 ± 2.83 %'}
_COMMIT = '44967cd3'
_DELTA = 1e-5
# About half of the norm of the initial model, 18.4.
_CLIPPING_NORM = 9.0


@dataclasses.dataclass(frozen=True)
class Scale:
  """T, N, P, Q, B and η_l, and a client's examples."""

  task: str
  num_rounds: int
  num_clients: int
  clients_per_round: int
  examples_per_client: int
  local_steps: int
  batch_size: int
  learning_rate: float


_MNIST = Scale('mnist_even', 96, 1920, 80, 125, 32, 64, 0.3)
_DIGITS = Scale('embedded_digits', 5, 500, 20, 8, 8, 8, 0.1)


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser()
  parser.add_argument('--data_dir', help='the folder with the files of MNIST')
  parser.add_argument('--epsilon', type=float, default=1.5)
  parser.add_argument('--seed', type=int, default=0)
  flags = parser.parse_args(argv)
  scale = _MNIST if flags.data_dir else _DIGITS
  runtime.set_default_context()
  task = registry.create_task(
    scale.task,
    PartitionConfig(
      'label_skew',
      num_clients=scale.num_clients,
      examples_per_client=scale.examples_per_client,
      seed=flags.seed,
    ),
    data_dir=flags.data_dir,
  )

  def create_model():
    return keras_models.create_mlp(
      task.input_shape, task.num_classes, seed=flags.seed
    )

  # z for T samples of exactly P of N clients, each of sensitivity 2 c.
  plan = privacy.PrivacyPlan.from_target_epsilon(
    num_clients=scale.num_clients,
    clients_per_round=scale.clients_per_round,
    num_rounds=scale.num_rounds,
    target_epsilon=flags.epsilon,
    target_delta=_DELTA,
    sampling='fixed_size',
    accountant='pld',
  )
  sampler = programs.build_private_sampler(
    plan, task.client_ids, seed=flags.seed
  )
  with tempfile.TemporaryDirectory() as folder:
    process = learning.build_model_clipping_fed_avg(
      run_models.build_model_fn(create_model, task.element_spec),
      clipping_norm=_CLIPPING_NORM,
      local_steps=scale.local_steps,
      batch_size=scale.batch_size,
      client_learning_rate=scale.learning_rate,
      client_store=task.write_client_store(folder),
      seed=flags.seed,
      model_aggregator=aggregators.dp_mean_factory(
        clipping_norm=_CLIPPING_NORM, **plan.aggregator_parameters._asdict()
      ),
    )
    state = process.initialize()
    for round_num in range(1, plan.num_rounds + 1):
      state = process.next(state, sampler.sample(round_num)).state
  model = create_model()
  process.get_model_weights(state).assign_weights_to(model)
  found = model.predict(task.test['x'], verbose=0).argmax(axis=1)
  print(
    f'model clipping with noise on {task.name}: '
    f'{100 * np.mean(found == task.test["y"]):.2f} % after {plan.num_rounds} '
    f'rounds, ε = {plan.epsilon:.4g} (δ = {_DELTA:g}, z = '
    f'{plan.noise_multiplier:.3f}); published on mnist_even: '
    f'{_PUBLISHED.get(flags.epsilon, "nothing")} (commit {_COMMIT})'
  )


if __name__ == '__main__':
  main()
