"""FedAvg in hand-written PyTorch: a process for each core, one thread in each.

  python -m benchmarks.peers.torch_by_hand WORK.npz

No framework: each process trains a share of the clients and returns the sum of
their updates, which the parent adds up. `pfl_peer` and `flower_peer` have the
same model, `flower_peer` the same local steps.
"""

import os
import sys

import numpy as np
import torch
from torch import multiprocessing, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from benchmarks.peers.work_file import Work
from benchmarks.turns import Rounds


def main(path: str) -> None:
  """Runs all rounds and prints the result."""
  work = Work(path)
  model = create_model(work)
  weights = parameters_to_vector(model.parameters()).detach()
  cores = len(os.sched_getaffinity(0))
  shares = np.array_split(np.arange(len(work.x)), cores)
  context = multiprocessing.get_context('spawn')
  with context.Pool(cores, _start, (path,)) as pool:
    rounds = Rounds(work.num_rounds)
    for _ in rounds:
      sums = pool.starmap(
        _add_updates, [(weights.numpy(), share) for share in shares], 1
      )
      weights += torch.from_numpy(sum(sums)) / len(work.x)
  work.print_result(rounds.seconds, predict(model, weights, work))


def create_model(work: Work) -> nn.Module:
  """Returns the perceptron of `tasks.models.keras_models`.

  Args:
    work: Where its initial weights are.

  Returns:
    A module from uint8 images [batch, height, width, channels] to logits.
  """
  return nn.Sequential(
    _Pixels(), _dense(*work.weights[:2]), nn.ReLU(), _dense(*work.weights[2:])
  )


def local_update(
  model: nn.Module, weights: torch.Tensor, work: Work, client: int
) -> torch.Tensor:
  """Returns what a client's local steps change.

  Args:
    model: The model.
    weights: Its weights as a vector, where the steps start.
    work: The client's examples and the steps.
    client: The number of the client.
  """
  vector_to_parameters(weights.clone(), model.parameters())
  optimizer = torch.optim.SGD(model.parameters(), lr=work.learning_rate)
  for x, y in zip(*work.batches(client, np.random.default_rng()), strict=True):
    optimizer.zero_grad()
    logits = model(torch.from_numpy(x))
    functional.cross_entropy(logits, torch.from_numpy(y).long()).backward()
    optimizer.step()
  return parameters_to_vector(model.parameters()).detach() - weights


@torch.no_grad()
def predict(model: nn.Module, weights: torch.Tensor, work: Work) -> np.ndarray:
  """Returns the class of each test image."""
  vector_to_parameters(weights, model.parameters())
  return model(torch.from_numpy(work.test_x)).argmax(1).numpy()


class _Pixels(nn.Module):
  """Images of bytes to rows of floats from 0 to 1."""

  def forward(self, x):
    return x.flatten(1).to(torch.float32) / 255


def _dense(kernel: np.ndarray, bias: np.ndarray) -> nn.Module:
  layer = nn.Linear(*kernel.shape)
  layer.weight.data = torch.from_numpy(kernel.T.copy())
  layer.bias.data = torch.from_numpy(bias)
  return layer


def _start(path: str) -> None:
  """Makes the work and a model for this process."""
  global _work, _model
  torch.set_num_threads(1)
  _work = Work(path)
  _model = create_model(_work)


def _add_updates(weights: np.ndarray, clients: np.ndarray) -> np.ndarray:
  """Returns the sum of the updates of clients."""
  start = torch.from_numpy(weights)
  return sum(local_update(_model, start, _work, c) for c in clients).numpy()


if __name__ == '__main__':
  main(sys.argv[1])
