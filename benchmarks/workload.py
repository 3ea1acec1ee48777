"""The work that is measured: P clients with digits, Q steps of a full batch."""

import collections
import dataclasses

import numpy as np

from tasks.data.datasets import digits


@dataclasses.dataclass(frozen=True)
class Workload:
  """One round's work.

  Attributes:
    model: A model of `tasks.models.keras_models`.
    clients_per_round: P.
    local_steps: Q.
    batch_size: The number of examples in a step.
    num_rounds: How many rounds are timed, after `NUM_WARM_UP_ROUNDS` and before
      `NUM_LAST_ROUNDS`.
    client_learning_rate: The local step size.
    examples_per_client: The number of examples of each client.
    image_shape: The shape of an image.
    num_classes: The number of classes.
  """

  model: str
  clients_per_round: int
  local_steps: int
  batch_size: int
  num_rounds: int
  client_learning_rate: float
  examples_per_client: int = 125
  image_shape: tuple[int, int, int] = (28, 28, 1)
  num_classes: int = 10

  @property
  def total_rounds(self) -> int:
    """The number of rounds that are run, with those that are not timed."""
    return NUM_WARM_UP_ROUNDS + self.num_rounds + NUM_LAST_ROUNDS

  def examples(self) -> collections.OrderedDict[str, np.ndarray]:
    """Returns the digits that the clients draw from."""
    (x, y), _ = digits.load_digits()
    return collections.OrderedDict(x=x, y=y)

  def test_examples(self) -> collections.OrderedDict[str, np.ndarray]:
    """Returns the digits that no client has."""
    _, (x, y) = digits.load_digits()
    return collections.OrderedDict(x=x, y=y)

  def partition(self) -> list[np.ndarray]:
    """Returns which of `examples` each client has, all different."""
    num_examples = len(self.examples()['y'])
    rng = np.random.default_rng(0)
    return [
      rng.choice(num_examples, self.examples_per_client, replace=False)
      for _ in range(self.clients_per_round)
    ]

  def __str__(self) -> str:
    return (
      f'P={self.clients_per_round}, Q={self.local_steps}, batch '
      f'{self.batch_size}, {self.examples_per_client} examples a client'
    )


NUM_WARM_UP_ROUNDS = 2
# With the evaluation and the checkpoint that a run ends with.
NUM_LAST_ROUNDS = 1
# Of a process of TFF's in one context.
NUM_CONTEXT_ROUNDS = 9

WORKLOADS = {
  # The paper's round on EMNIST digits.
  'mlp': Workload('mlp', 80, 32, 64, 6, 0.1),
  # Fractions of the paper's round: these models take 20 to 1000 times as long.
  'alexnet': Workload('alexnet', 8, 4, 64, 6, 0.03),
  'mobilenet_v2': Workload('mobilenet_v2', 4, 8, 32, 6, 0.01),
  'resnet18': Workload('resnet18', 4, 4, 32, 6, 0.01),
  # As many updates of 11.1M parameters as the paper's round has, each after as
  # little training as there is: for memory.
  'resnet18_memory': Workload('resnet18', 80, 1, 4, 0, 0.01),
}
