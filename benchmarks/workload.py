"""The work that is measured: P clients with digits, Q steps of a full batch."""

import collections
import dataclasses

import numpy as np

from tasks.data import public

IMAGE_SHAPE = (28, 28, 1)
NUM_CLASSES = 10
EXAMPLES_PER_CLIENT = 125
# How many rounds of a process of TFF's are timed.
NUM_CONTEXT_ROUNDS = 9


def load_digits() -> list[collections.OrderedDict[str, np.ndarray]]:
  """Returns the digits that clients draw from, and those that no client has."""
  digits = public.read_embedded_digits()
  return [
    collections.OrderedDict(x=digits[f'x{part}'], y=digits[f'y{part}'])
    for part in ('', '_test')
  ]


@dataclasses.dataclass(frozen=True)
class Workload:
  """One round's work.

  Attributes:
    model: A model of `tasks.models.keras_models`.
    clients_per_round: P.
    local_steps: Q.
    batch_size: The number of examples in a step.
    client_learning_rate: The local step size.
    num_rounds: How many rounds are timed.
  """

  model: str
  clients_per_round: int
  local_steps: int
  batch_size: int
  client_learning_rate: float
  num_rounds: int = 10

  def partition(self) -> list[np.ndarray]:
    """Returns which of the digits each client has, all different."""
    num_examples = len(load_digits()[0]['y'])
    rng = np.random.default_rng(0)
    return [
      rng.choice(num_examples, EXAMPLES_PER_CLIENT, replace=False)
      for _ in range(self.clients_per_round)
    ]


WORKLOADS = {
  # The paper's round on EMNIST digits.
  'mlp': Workload('mlp', 80, 32, 64, 0.1),
  # A fraction of the paper's round, which takes 20 times as long.
  'alexnet': Workload('alexnet', 8, 4, 64, 0.03),
  # As many updates of 11.1M parameters as the paper's round has, each after as
  # little training as there is: for memory.
  'resnet18_memory': Workload('resnet18', 80, 1, 4, 0.01, num_rounds=0),
}
