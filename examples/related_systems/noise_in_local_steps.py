"""Noise in each local step (Truex et al. 2019), and DP-SGD (Abadi et al. 2016).

  python -m examples.related_systems.noise_in_local_steps --data_dir=DIR

What it shows: clients that add noise in each local step need more noise in all
than DP-FedAvg, which adds noise once a round, and protect an example alone.
`--dp_sgd` makes DP-SGD of it: one client has all examples. (DP-FedAvg is DP-SGD
where each client has one example and takes one step.)

What it promises: (ε, δ) to each example of a client, which the client has or
not, against everybody, the server included: `noisy_steps.py` has the steps.

What it does not promise: anything to a client as a whole, or to an example that
several clients have; that nobody knows who takes part. It is a simulation: the
last bits of NumPy's noise can tell more than ε (Mironov 2012).

With `--data_dir` it makes the figures of docs/related.md. No image has two
clients. `--search` tells how good a learning rate is without the test set: it
trains on every other training image, and tests on the others; it needs
`--data_dir`, without which this is a short run on the embedded digits.
"""

import dp_accounting
import numpy as np

from examples.related_systems import noisy_steps, setting
from tasks.data import registry
from tasks.data.partitions import PartitionConfig
from tasks.models import keras_models

_DELTA = 1e-5
_MIN_SEPARATION = 24  # N / P: the rounds until a client comes again.
# The split, the images, T, and the rates of noise in each local step and of
# DP-SGD, for MNIST and CIFAR-10 from docs/reproduction/rates.csv.
_TASKS = {
  'mnist': ('label_skew', 60_000, 96, 0.03, 12),
  'cifar10': ('iid', 50_000, 40, 0.03, 4),
  'embedded_digits': ('label_skew', 4000, 48, 0.1, 4),
}


def choose_scale(num_rounds, num_images, dp_sgd):
  """Returns T rounds of a 24th of the clients, or T lots of as many images."""
  num_clients = num_images // 125 // _MIN_SEPARATION * _MIN_SEPARATION
  if not dp_sgd:
    return noisy_steps.Scale(
      num_rounds, num_clients, 125, 32, 64, _MIN_SEPARATION
    )
  n = 125 * num_clients
  return noisy_steps.Scale(1, 1, n, num_rounds, n // _MIN_SEPARATION, 1)


def main(argv: list[str] | None = None) -> None:
  parser = setting.parser()
  parser.add_argument('--task', choices=['mnist', 'cifar10'], default='mnist')
  parser.add_argument('--dp_sgd', action='store_true')
  parser.add_argument('--search', action='store_true')
  parser.add_argument('--learning_rate', type=float)
  flags = parser.parse_args(argv)
  if flags.search and not flags.data_dir:
    parser.error('--search needs --data_dir: the digits have no halves')
  name = flags.task if flags.data_dir else 'embedded_digits'
  partition, num_images, num_rounds, *rates = _TASKS[name]
  rate = flags.learning_rate
  if rate is None:
    rate = rates[flags.dp_sgd]
  scale = choose_scale(
    num_rounds, num_images // (1 + flags.search), flags.dp_sgd
  )
  split = PartitionConfig(
    'iid' if flags.dp_sgd else partition,
    num_clients=scale.num_clients,
    examples_per_client=scale.examples_per_client,
    seed=flags.seed,
  )

  def load(half):
    return registry.create_task(name + half, split, data_dir=flags.data_dir)

  task = load('_even' if flags.search else '')
  test = load('_odd').train if flags.search else task.test
  model = keras_models.create_mlp(task.input_shape, 10, seed=flags.seed)
  rescale, flatten = model.layers[1:3]
  rdp = dp_accounting.rdp.RdpAccountant
  z = dp_accounting.calibrate_dp_mechanism(
    rdp, lambda z: noisy_steps.build_event(z, scale), flags.epsilon, _DELTA
  )
  epsilon = rdp().compose(noisy_steps.build_event(z, scale)).get_epsilon(_DELTA)

  x, y = task.train['x'], task.train['y']
  order = np.random.default_rng([flags.seed, 0]).permutation(scale.num_clients)
  turns = np.split(order, scale.num_turns)  # Those of the published runs.
  weights, rng = model.get_weights(), np.random.default_rng()
  for round_num in range(scale.num_rounds):
    trained = []
    for client in turns[round_num % len(turns)]:
      rows = task.partition.indices[client]
      trained.append(
        noisy_steps.train_client(
          weights,
          flatten(rescale(x[rows])).numpy(),
          y[rows],
          noise_multiplier=z,
          learning_rate=rate,
          scale=scale,
          rng=rng,
        )
      )
    weights = [np.mean(each, axis=0) for each in zip(*trained, strict=True)]
  model.set_weights(weights)
  found = model.predict(test['x'], verbose=0).argmax(axis=1)
  system = 'DP-SGD' if flags.dp_sgd else 'noise in each local step'
  judged = 'the other half' if flags.search else 'the test set'
  print(
    f'{system} on {task.name}: {100 * np.mean(found == test["y"]):.2f} % '
    f'of {judged} at rate {rate:g}, ε = {epsilon:.4g} (δ = '
    f'{_DELTA:g}, z = {z:.3f}, seed {flags.seed})'
  )


if __name__ == '__main__':
  main()
