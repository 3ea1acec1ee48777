"""The work as a file that every environment can read: NumPy alone.

It holds the clients' examples, the test examples, the initial weights and the
numbers of the workload, so that all peers start from the same model, train on
the same data and are judged by the same digits.
"""

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclasses.dataclass(frozen=True)
class Work:
  """One workload, as arrays.

  Attributes:
    settings: The fields of `benchmarks.workload.Workload` by name, and
      `total_rounds`.
    x: The clients' images, uint8 [clients, examples, height, width, channels].
    y: Their labels, int32 [clients, examples].
    test_x: The test images, uint8 [examples, height, width, channels].
    test_y: Their labels, int32 [examples].
    weights: The initial weights of the perceptron: `dense_0_kernel`, float32
      [pixels, hidden], `dense_0_bias`, and the same of `dense_1`.
    test_loss: The loss of the initial model on the test images, which tells
      whether a model elsewhere is the same.
  """

  settings: dict[str, Any]
  x: np.ndarray
  y: np.ndarray
  test_x: np.ndarray
  test_y: np.ndarray
  weights: dict[str, np.ndarray]
  test_loss: float

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
    steps, size = self.settings['local_steps'], self.settings['batch_size']
    num_examples = self.y.shape[1]
    num_passes = -(-steps * size // num_examples)
    order = rng.permuted(
      np.tile(np.arange(num_examples), (num_passes, 1)), axis=1
    )
    rows = order.reshape(-1)[: steps * size].reshape(steps, size)
    return self.x[client][rows], self.y[client][rows]


def write(path: str | os.PathLike, work: Work) -> None:
  """Writes `work` to `path`, an .npz file."""
  facts = dict(settings=work.settings, test_loss=work.test_loss)
  np.savez(
    path,
    facts=json.dumps(facts),
    x=work.x,
    y=work.y,
    test_x=work.test_x,
    test_y=work.test_y,
    **{f'weights/{name}': value for name, value in work.weights.items()},
  )


def read(path: str | os.PathLike) -> Work:
  """Returns what `write` wrote to `path`."""
  with np.load(path) as arrays:
    facts = json.loads(str(arrays['facts']))
    return Work(
      x=arrays['x'],
      y=arrays['y'],
      test_x=arrays['test_x'],
      test_y=arrays['test_y'],
      weights={
        name.removeprefix('weights/'): arrays[name]
        for name in arrays.files
        if name.startswith('weights/')
      },
      **facts,
    )


def print_result(
  work: Work, seconds: Sequence[float], predicted: npt.ArrayLike
) -> None:
  """Prints, as JSON, what a peer has come to.

  Args:
    work: The work.
    seconds: Those of every round.
    predicted: The class of each test image by the last model.
  """
  accuracy = float((np.asarray(predicted) == work.test_y).mean())
  print(json.dumps(dict(seconds=seconds, accuracy=accuracy)))
