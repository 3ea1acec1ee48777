"""The round in FedJAX: its own federated averaging.

  python -m benchmarks.peers.fedjax_peer WORK.npz

FedJAX runs one client after the other and leaves the cores to XLA.
"""

import sys

import fedjax
import jax
import jax.numpy as jnp

from benchmarks.peers.work_file import Work
from benchmarks.turns import Rounds


def main(path: str) -> None:
  """Runs all rounds and prints the result."""
  work = Work(path)
  data = fedjax.InMemoryFederatedData(
    {
      f'{number:05d}': dict(x=x, y=y)
      for number, (x, y) in enumerate(zip(work.x, work.y, strict=True))
    }
  )
  algorithm = fedjax.algorithms.fed_avg.federated_averaging(
    jax.grad(_loss),
    client_optimizer=fedjax.optimizers.sgd(work.learning_rate),
    server_optimizer=fedjax.optimizers.sgd(1.0),
    # Shuffled anew for every pass, full batches, exactly Q of them.
    client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(
      batch_size=work.batch_size, num_epochs=None, num_steps=work.local_steps
    ),
  )
  state = algorithm.init([jnp.asarray(value) for value in work.weights])
  rounds = Rounds(work.num_rounds)
  for round_num in rounds:
    keys = jax.random.split(jax.random.PRNGKey(round_num), len(work.x))
    cohort = [
      (client_id, dataset, key)
      for (client_id, dataset), key in zip(data.clients(), keys, strict=True)
    ]
    state, _ = algorithm.apply(state, cohort)
    jax.block_until_ready(state.params)
  predicted = _logits(state.params, work.test_x).argmax(1)
  work.print_result(rounds.seconds, predicted)


def _logits(params, x):
  """The perceptron of `tasks.models.keras_models`."""
  kernel, bias, last_kernel, last_bias = params
  x = jnp.reshape(x, (len(x), -1)) * jnp.float32(1 / 255)
  return jax.nn.relu(x @ kernel + bias) @ last_kernel + last_bias


def _loss(params, batch, rng):
  del rng
  log_probs = jax.nn.log_softmax(_logits(params, batch['x']))
  chosen = jnp.take_along_axis(log_probs, batch['y'][:, None], axis=1)
  return -jnp.mean(chosen)


if __name__ == '__main__':
  main(sys.argv[1])
