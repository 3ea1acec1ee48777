"""The work as a file that every environment can read: NumPy alone.

It holds the clients' examples, the test examples, the initial weights and the
numbers of the workload, so that all peers start from the same model, train on
the same data and are judged by the same digits. `benchmarks.peers.compare`
writes it.
"""

import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


class Work:
  """One workload, as arrays.

  Attributes:
    x: The clients' images, uint8 [clients, examples, height, width, channels].
    y: Their labels, int32 [clients, examples].
    test_x: The test images, uint8 [examples, height, width, channels].
    test_y: Their labels, int32 [examples].
    weights: The initial weights of the perceptron: kernel, float32 [pixels,
      hidden], and bias of the hidden layer, and the same of the last one.
    num_rounds: How many rounds are timed.
    local_steps: Q.
    batch_size: The number of examples in a step.
    learning_rate: The local step size.
  """

  def __init__(self, path: str):
    """Reads the file."""
    with np.load(path) as arrays:
      self.x, self.y = arrays['x'], arrays['y']
      self.test_x, self.test_y = arrays['test_x'], arrays['test_y']
      self.weights = [arrays[f'weights_{number}'] for number in range(4)]
      self.num_rounds = int(arrays['num_rounds'])
      self.local_steps = int(arrays['local_steps'])
      self.batch_size = int(arrays['batch_size'])
      self.learning_rate = float(arrays['client_learning_rate'])

  def batches(
    self, client: int, rng: np.random.Generator
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns Q full batches of a client, shuffled anew for every pass.

    Args:
      client: The number of the client.
      rng: What shuffles.

    Returns:
      Images uint8 [Q, batch, height, width, channels], labels int32 [Q, batch].
    """
    total = self.local_steps * self.batch_size
    num_examples = self.y.shape[1]
    order = rng.permuted(
      np.tile(np.arange(num_examples), (-(-total // num_examples), 1)), axis=1
    )
    rows = order.reshape(-1)[:total].reshape(self.local_steps, self.batch_size)
    return self.x[client][rows], self.y[client][rows]

  def print_result(
    self, seconds: Sequence[float], predicted: npt.ArrayLike
  ) -> None:
    """Prints, as JSON, what a peer has come to.

    Args:
      seconds: Those of the timed rounds.
      predicted: The class of each test image by the last model.
    """
    accuracy = float((np.asarray(predicted) == self.test_y).mean())
    print(json.dumps(dict(seconds=seconds, accuracy=accuracy)))
