"""The round in FedJAX: its own federated averaging.

  python -m benchmarks.peers.fedjax_peer WORK.npz

FedJAX runs one client after the other and leaves the cores to XLA.
"""

import sys

import fedjax
import jax
import jax.numpy as jnp

from benchmarks.peers import work_file
from benchmarks.turns import Rounds


def main(path: str) -> None:
  """Runs all rounds and prints the result."""
  work = work_file.read(path)
  settings = work.settings
  clients = {
    f'{number:05d}': dict(x=work.x[number], y=work.y[number])
    for number in range(len(work.x))
  }
  data = fedjax.InMemoryFederatedData(clients)
  algorithm = fedjax.algorithms.fed_avg.federated_averaging(
    jax.grad(_loss),
    client_optimizer=fedjax.optimizers.sgd(settings['client_learning_rate']),
    server_optimizer=fedjax.optimizers.sgd(1.0),
    # Shuffled anew for every pass, full batches, exactly Q of them.
    client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(
      batch_size=settings['batch_size'],
      num_epochs=None,
      num_steps=settings['local_steps'],
    ),
  )
  state = algorithm.init(
    {name: jnp.asarray(value) for name, value in work.weights.items()}
  )
  rounds = Rounds(settings['total_rounds'])
  for round_num in rounds:
    keys = jax.random.split(jax.random.PRNGKey(round_num), len(clients))
    cohort = [
      (client_id, dataset, key)
      for (client_id, dataset), key in zip(
        data.get_clients(list(clients)), keys, strict=True
      )
    ]
    state, _ = algorithm.apply(state, cohort)
    jax.block_until_ready(state.params)
  predicted = _logits(state.params, work.test_x).argmax(1)
  work_file.print_result(work, rounds.seconds, predicted)


def _logits(params, x):
  """The perceptron of `tasks.models.keras_models`."""
  x = jnp.reshape(x, (len(x), -1)) * jnp.float32(1 / 255)
  hidden = jax.nn.relu(x @ params['dense_0_kernel'] + params['dense_0_bias'])
  return hidden @ params['dense_1_kernel'] + params['dense_1_bias']


def _loss(params, batch, rng):
  del rng
  log_probs = jax.nn.log_softmax(_logits(params, batch['x']))
  chosen = jnp.take_along_axis(log_probs, batch['y'][:, None], axis=1)
  return -jnp.mean(chosen)


if __name__ == '__main__':
  main(sys.argv[1])
