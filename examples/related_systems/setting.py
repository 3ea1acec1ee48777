"""What the examples of this folder share: flags, clients, the paper's MLP.

With `--data_dir` a run is that of docs/related.md, on images of MNIST. Without,
it is a short run on the embedded digits.
"""

import argparse
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from tff_clipping import learning, programs, runtime

from tasks.data import registry
from tasks.data.partitions import PartitionConfig
from tasks.models import keras_models, run_models


class Scale(NamedTuple):
  """The task, T, N, P, n, Q, B, η_l and, where it is fixed, c.

  n is the number of examples of a client.
  """

  task: str
  num_rounds: int
  num_clients: int
  clients_per_round: int
  examples_per_client: int
  local_steps: int
  batch_size: int
  learning_rate: float
  clipping_norm: float | None = None


# The scale of the paper, on every other image.
MNIST = Scale('mnist_even', 96, 1920, 80, 125, 32, 64, 0.3, 0.373)


def parser() -> argparse.ArgumentParser:
  """Returns the parser of the flags that all examples have."""
  found = argparse.ArgumentParser()
  found.add_argument('--data_dir', help='the folder of mnist.npz, cifar10.npz')
  found.add_argument('--epsilon', type=float, default=1.5)
  found.add_argument('--seed', type=int, default=0)
  return found


class Setting:
  """The clients with their data, and their model.

  Attributes:
    task: The data.
    scale: The numbers of the run.
  """

  def __init__(
    self,
    flags: argparse.Namespace,
    scale: Scale,
    partition: str = 'label_skew',
    **partition_settings: int,
  ):
    """Splits the data among the clients by the seed of the flags."""
    runtime.set_default_context()
    self.scale = scale
    self._seed = flags.seed
    self.task = registry.create_task(
      scale.task,
      PartitionConfig(
        partition,
        num_clients=scale.num_clients,
        examples_per_client=scale.examples_per_client,
        seed=flags.seed,
        **partition_settings,
      ),
      data_dir=flags.data_dir,
    )

  def create_model(self):
    """Returns the model with the initial weights of the seed."""
    return keras_models.create_mlp(
      self.task.input_shape, self.task.num_classes, seed=self._seed
    )

  def train(
    self,
    sampler: programs.ClientSampler,
    build: Callable[..., Any] = learning.build_fed_avg,
    watch: Callable[[int, Any], None] = lambda round_num, output: None,
    **settings: Any,
  ) -> float:
    """Trains for T rounds; returns the test accuracy in per cent.

    Args:
      sampler: Draws the cohorts.
      build: Builds the process.
      watch: Is called with the number and the output of each round.
      **settings: What `build` takes beside the model and the clients' work.
    """
    scale = self.scale
    with tempfile.TemporaryDirectory() as folder:
      process = build(
        run_models.build_model_fn(self.create_model, self.task.element_spec),
        local_steps=scale.local_steps,
        batch_size=scale.batch_size,
        client_learning_rate=scale.learning_rate,
        client_store=self.task.write_client_store(folder),
        seed=self._seed,
        **settings,
      )
      state = process.initialize()
      for round_num in range(1, scale.num_rounds + 1):
        output = process.next(state, sampler.sample(round_num))
        state = output.state
        watch(round_num, output)
    model = self.create_model()
    process.get_model_weights(state).assign_weights_to(model)
    found = model.predict(self.task.test['x'], verbose=0).argmax(axis=1)
    return 100 * np.mean(found == self.task.test['y'])
