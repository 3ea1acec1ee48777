"""The round in Flower: its FedAvg on its engine, an actor for each core.

  python -m benchmarks.peers.flower_peer WORK.npz

The client's work is the hand-written PyTorch of `torch_by_hand`; Flower sends
the weights to Ray's actors of one core each, and averages what comes back.
"""

import functools
import os
import sys

import numpy as np
import torch
from flwr.app import ArrayRecord, Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers import flower_client, torch_by_hand, work_file
from benchmarks.turns import Rounds


def main(path: str) -> None:
  """Runs all rounds and prints the result."""
  work = work_file.read(path)
  found = []

  def serve(grid: Grid, context: Context) -> None:
    del context
    found.extend(_run_rounds(grid, work))

  server = ServerApp()
  server.main()(serve)
  client = ClientApp()
  client.train()(functools.partial(flower_client.train, path=path))
  run_simulation(
    server_app=server,
    client_app=client,
    num_supernodes=len(work.x),
    backend_config=dict(
      client_resources=dict(num_cpus=1, num_gpus=0.0),
      # Of its own, whatever cluster of Ray there may be on the machine.
      init_args=dict(address='local', num_cpus=len(os.sched_getaffinity(0))),
    ),
  )
  work_file.print_result(work, *found)


def _run_rounds(
  grid: Grid, work: work_file.Work
) -> tuple[list[float], np.ndarray]:
  """Runs the strategy; returns the seconds, and the classes of test images."""
  model, weights = torch_by_hand.create_flat_model(work)
  rounds = Rounds(work.settings['total_rounds'])

  class Timed(FedAvg):
    """FedAvg that starts a round when its turn comes."""

    def configure_train(self, *args, **kwargs):
      rounds.advance()
      return super().configure_train(*args, **kwargs)

  strategy = Timed(
    fraction_train=1.0,
    min_train_nodes=len(work.x),
    min_available_nodes=len(work.x),
    fraction_evaluate=0.0,
  )
  result = strategy.start(
    grid=grid,
    initial_arrays=ArrayRecord([weights.numpy().copy()]),
    num_rounds=work.settings['total_rounds'],
  )
  rounds.advance()
  weights.copy_(torch.from_numpy(result.arrays.to_numpy_ndarrays()[0]))
  return rounds.seconds, torch_by_hand.predict(model, work)


if __name__ == '__main__':
  main(sys.argv[1])
