"""A round in hand-written PyTorch: a process for each core, one thread in each.

  python -m benchmarks.peers.torch_by_hand WORK.npz

No framework: each process trains every second client, clips its update and adds
it up in shared memory; the parent adds the sums and the noise. All weights of a
model are views into one vector, so that differences, norms and sums are one
operation each. Prints the seconds of every round and the final test accuracy.
"""

import json
import os
import sys

import numpy as np
import torch
from torch import multiprocessing, nn
from torch.nn import functional

from benchmarks.peers import torch_models, work_file
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
  print(
    json.dumps(
      dict(
        seconds=rounds.seconds,
        accuracy=test_accuracy(model, work),
      )
    )
  )


def create_flat_model(work: work_file.Work) -> tuple[nn.Module, torch.Tensor]:
  """Returns the model and one vector that holds all of its weights.

  Convolutions keep their kernels in the memory format `channels_last`.
  """
  model = torch_models.create_model(work.settings['model'], work.weights)
  vector = torch.empty(sum(p.numel() for p in model.parameters()))
  start = 0
  for parameter in model.parameters():
    part = vector[start : start + parameter.numel()]
    start += parameter.numel()
    if parameter.dim() == 4:
      out_channels, in_channels, height, width = parameter.shape
      part = part.view(out_channels, height, width, in_channels)
      part = part.permute(0, 3, 1, 2)
    else:
      part = part.view(parameter.shape)
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
def test_accuracy(model: nn.Module, work: work_file.Work) -> float:
  """Returns the share of test images that the model recognises."""
  predicted = model(torch.from_numpy(work.test_x)).argmax(1)
  return float((predicted == torch.from_numpy(work.test_y)).float().mean())


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
