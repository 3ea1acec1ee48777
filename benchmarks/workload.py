"""The work that is measured: P clients of random images, Q steps of a batch."""

import collections
import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Workload:
  """One round's work.

  Attributes:
    model: A model of `tasks.keras_models`.
    image_shape: The shape of an image.
    clients_per_round: P.
    examples_per_client: The number of examples of each client.
    local_steps: Q.
    batch_size: The number of examples in a step.
    num_rounds: How many rounds are timed, after two that are not.
  """

  model: str
  image_shape: tuple[int, int, int]
  clients_per_round: int
  examples_per_client: int
  local_steps: int
  batch_size: int
  num_rounds: int

  def examples(self) -> collections.OrderedDict[str, np.ndarray]:
    """Returns the examples of all clients, one after the other."""
    rng = np.random.default_rng(0)
    total = self.clients_per_round * self.examples_per_client
    return collections.OrderedDict(
      x=rng.integers(0, 256, (total, *self.image_shape), dtype=np.uint8),
      y=rng.integers(0, 10, total).astype(np.int32),
    )

  def partition(self) -> list[np.ndarray]:
    """Returns the rows of each client."""
    return list(
      np.arange(self.clients_per_round * self.examples_per_client).reshape(
        self.clients_per_round, -1
      )
    )


WORKLOADS = {
  # The paper's round on EMNIST digits.
  'mlp': Workload('mlp', (28, 28, 1), 80, 125, 32, 64, 9),
  # A fraction of the paper's round: AlexNet takes 20 times as long.
  'alexnet': Workload('alexnet', (28, 28, 1), 8, 125, 8, 64, 7),
}
