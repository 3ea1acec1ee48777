"""DP-SGD (Abadi et al. 2016): DP-FedAvg of clients with one example each.

  python -m examples.related_systems.dp_sgd --data_dir=DIR

What it shows: where each client has one example and takes one step, an update
is -η_l g_i, and clip(-η_l g_i, c) = -η_l clip(g_i, C) for C = c / η_l. So
DP-FedAvg is x <- x - η_g η_l (Σ clip(g_i, C) + N(0, (z C)² I)) / P, which is
DP-SGD with the norm C, the lot P and the learning rate η_g η_l.

What it promises: (ε, δ) to each example, which is there or not, against
whoever sees the models. Each example joins a lot by a secret coin.

What it does not promise: anything against the server, which sees gradients
without noise; to a person with several examples; to an example that is there
several times. Here the seed of the coins is a flag, so that they are not secret
from whoever knows the flag.

With `--data_dir` the run is that of docs/related.md: each image of MNIST is a
client. The published figure's learning rate was not searched for, and a larger
one does better. Without, it is a short run on the embedded digits.
"""

import argparse
import tempfile
from typing import NamedTuple

import dp_accounting
import numpy as np
from tff_clipping import aggregators, learning, programs, runtime

from tasks.data import registry
from tasks.data.partitions import PartitionConfig
from tasks.models import keras_models, run_models

# Test accuracies on MNIST, three seeds, by ε.
_PUBLISHED = {1.5: '82.38 ± 0.69 %', 5.0: '82.42 ± 0.65 %'}
_DELTA = 1e-5
_CLIPPING_NORM = 1.0  # C
_LEARNING_RATE = 0.5  # η_l, with η_g = 1


class Scale(NamedTuple):
  """T, N and P."""

  task: str
  num_rounds: int
  num_examples: int
  lot_size: int


_MNIST = Scale('mnist', 96, 60_000, 2500)
_DIGITS = Scale('embedded_digits', 20, 4000, 200)


def build_event(noise_multiplier, scale):
  """Returns the lots that an example may be in."""
  lot = dp_accounting.PoissonSampledDpEvent(
    scale.lot_size / scale.num_examples,
    dp_accounting.GaussianDpEvent(noise_multiplier),
  )
  return dp_accounting.SelfComposedDpEvent(lot, scale.num_rounds)


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser()
  parser.add_argument('--data_dir', help='the folder with the files of MNIST')
  parser.add_argument('--epsilon', type=float, default=1.5)
  parser.add_argument('--seed', type=int, default=0)
  flags = parser.parse_args(argv)
  scale = _MNIST if flags.data_dir else _DIGITS
  runtime.set_default_context()
  split = PartitionConfig(
    'iid',
    num_clients=scale.num_examples,
    examples_per_client=1,
    seed=flags.seed,
  )
  task = registry.create_task(scale.task, split, data_dir=flags.data_dir)

  def create_model():
    return keras_models.create_mlp(task.input_shape, 10, seed=flags.seed)

  sampler = programs.PoissonSampler(
    task.client_ids,
    sampling_prob=scale.lot_size / scale.num_examples,
    seed=flags.seed,
  )
  rdp = dp_accounting.rdp.RdpAccountant
  z = dp_accounting.calibrate_dp_mechanism(
    rdp, lambda z: build_event(z, scale), flags.epsilon, _DELTA
  )
  epsilon = rdp().compose(build_event(z, scale)).get_epsilon(_DELTA)
  with tempfile.TemporaryDirectory() as folder:
    process = learning.build_fed_avg(
      run_models.build_model_fn(create_model, task.element_spec),
      local_steps=1,
      batch_size=1,
      client_learning_rate=_LEARNING_RATE,
      client_store=task.write_client_store(folder),
      model_aggregator=aggregators.dp_mean_factory(
        clipping_norm=_LEARNING_RATE * _CLIPPING_NORM,
        noise_multiplier=z,
        clients_per_round=scale.lot_size,
      ),
    )
    state = process.initialize()
    for round_num in range(1, scale.num_rounds + 1):
      state = process.next(state, sampler.sample(round_num)).state
  model = create_model()
  process.get_model_weights(state).assign_weights_to(model)
  found = model.predict(task.test['x'], verbose=0).argmax(axis=1)
  print(
    f'DP-SGD on {task.name}: {100 * np.mean(found == task.test["y"]):.2f} % '
    f'after {scale.num_rounds} lots, ε = {epsilon:.4g} (δ = {_DELTA:g}, z = '
    f'{z:.3f}); published on mnist: '
    f'{_PUBLISHED.get(flags.epsilon, "nothing")} (commit 44967cd3)'
  )


if __name__ == '__main__':
  main()
