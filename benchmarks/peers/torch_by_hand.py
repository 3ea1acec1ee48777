"""A round in hand-written PyTorch: a process for each core, one thread in each.

  python -m benchmarks.peers.torch_by_hand WORK.npz

No framework: each process trains every second client, clips its update and adds
it up in shared memory; the parent adds the sums and the noise. All weights of a
model are views into one vector, so that differences, norms and sums are one
operation each. Prints the seconds of every round and the final test accuracy.
"""

import os
import sys

import numpy as np
import torch
from torch import multiprocessing, nn
from torch.nn import functional

from benchmarks.peers import work_file
from benchmarks.turns import Rounds


def main(path: str) -> None:
  """Runs all rounds and prints the result."""
  work = work_file.read(path)
  model, weights = create_flat_model(work)
  weights.share_memory_()
  num_processes = len(os.sched_getaffinity(0))
  sums = torch.zeros(num_processes, len(weights)).share_memory_()
  context = multiprocessing.get_context('spawn')
  barrier = context.Barrier(num_processes + 1)
  processes = [
    context.Process(
      target=_run_share,
      args=(path, share, num_processes, weights, sums[share], barrier),
      daemon=True,
    )
    for share in range(num_processes)
  ]
  for process in processes:
    process.start()
  barrier.wait()
  generator = torch.Generator().manual_seed(0)
  rounds = Rounds(work.settings['total_rounds'])
  for _ in rounds:
    barrier.wait()
    barrier.wait()
    total = sums.sum(0)
    # A private round draws noise. This one is so small that the accuracy shows
    # whether the work is that of the others.
    total += 1e-9 * torch.randn(len(total), generator=generator)
    weights += total / work.settings['clients_per_round']
  for process in processes:
    process.join()
  work_file.print_result(work, rounds.seconds, predict(model, work))


def create_model(work: work_file.Work) -> nn.Module:
  """Returns the perceptron of `tasks.models.keras_models`.

  Args:
    work: Where its initial weights are.

  Returns:
    A module from uint8 images [batch, height, width, channels] to logits.
  """
  return nn.Sequential(
    _Pixels(), _dense(work, 'dense_0'), nn.ReLU(), _dense(work, 'dense_1')
  )


def create_flat_model(work: work_file.Work) -> tuple[nn.Module, torch.Tensor]:
  """Returns the model and one vector that holds all of its weights."""
  model = create_model(work)
  vector = torch.empty(sum(p.numel() for p in model.parameters()))
  start = 0
  for parameter in model.parameters():
    part = vector[start : start + parameter.numel()].view(parameter.shape)
    start += parameter.numel()
    part.copy_(parameter.data)
    parameter.data = part
  return model, vector


def local_update(
  model: nn.Module,
  weights: torch.Tensor,
  global_weights: torch.Tensor,
  batches: tuple[np.ndarray, np.ndarray],
  learning_rate: float,
) -> torch.Tensor:
  """Returns what a client's local steps change.

  Args:
    model: The model.
    weights: The vector of its weights; see `create_flat_model`.
    global_weights: Where the steps start.
    batches: Images uint8 and labels int32 of every step.
    learning_rate: The local step size.
  """
  weights.copy_(global_weights)
  parameters = list(model.parameters())
  for x, y in zip(*batches, strict=True):
    logits = model(torch.from_numpy(x))
    loss = functional.cross_entropy(logits, torch.from_numpy(y).long())
    gradients = torch.autograd.grad(loss, parameters)
    with torch.no_grad():
      torch._foreach_add_(parameters, gradients, alpha=-learning_rate)
  return weights - global_weights


@torch.no_grad()
def predict(model: nn.Module, work: work_file.Work) -> np.ndarray:
  """Returns the class of each test image."""
  return model(torch.from_numpy(work.test_x)).argmax(1).numpy()


class _Pixels(nn.Module):
  """Images of bytes to rows of floats from 0 to 1."""

  def forward(self, x):
    return x.flatten(1).to(torch.float32).mul_(1 / 255)


def _dense(work: work_file.Work, name: str) -> nn.Module:
  kernel, bias = (work.weights[f'{name}_{part}'] for part in ('kernel', 'bias'))
  layer = nn.Linear(*kernel.shape)
  layer.weight.data = torch.from_numpy(kernel.T.copy())
  layer.bias.data = torch.from_numpy(bias)
  return layer


def _run_share(
  path: str,
  share: int,
  num_shares: int,
  global_weights: torch.Tensor,
  total: torch.Tensor,
  barrier,
) -> None:
  """Trains every `num_shares`-th client of every round."""
  torch.set_num_threads(1)
  work = work_file.read(path)
  model, weights = create_flat_model(work)
  rng = np.random.default_rng(share)
  barrier.wait()
  for _ in range(work.settings['total_rounds']):
    barrier.wait()
    total.zero_()
    for client in range(share, len(work.x), num_shares):
      update = local_update(
        model,
        weights,
        global_weights,
        work.batches(client, rng),
        work.settings['client_learning_rate'],
      )
      # The clip of a private round, with a bound that changes nothing.
      total += update * torch.clamp(1e3 / update.norm(), max=1.0)
    barrier.wait()


if __name__ == '__main__':
  main(sys.argv[1])
