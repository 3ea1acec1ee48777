"""The round in Flower: its FedAvg on its engine, an actor for each core.

  python -c 'from benchmarks.peers import flower_peer
  flower_peer.main("WORK.npz")'

The client's work is the hand-written PyTorch of `torch_by_hand`; Flower sends
the weights to Ray's actors of one core each, and averages what comes back. The
actors import this module, so that it is none that runs.
"""

import functools
import os

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn.utils import parameters_to_vector

from benchmarks.peers import torch_by_hand
from benchmarks.peers.work_file import Work
from benchmarks.turns import Rounds, total_rounds


def main(path: str) -> None:
  """Runs all rounds and prints the result."""
  work = Work(path)
  server, client = ServerApp(), ClientApp()
  server.main()(functools.partial(_serve, work=work))
  client.train()(functools.partial(_train, path=path))
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


class _Timed(FedAvg):
  """FedAvg that starts a round when its turn comes."""

  def __init__(self, rounds: Rounds, **kwargs):
    super().__init__(**kwargs)
    self._rounds = rounds

  def configure_train(self, *args, **kwargs):
    self._rounds.advance()
    return super().configure_train(*args, **kwargs)


def _serve(grid: Grid, context: Context, *, work: Work) -> None:
  """Runs the strategy and prints the result."""
  del context
  model = torch_by_hand.create_model(work)
  start = parameters_to_vector(model.parameters()).detach().numpy()
  rounds = Rounds(work.num_rounds)
  strategy = _Timed(
    rounds,
    fraction_train=1.0,
    min_train_nodes=len(work.x),
    min_available_nodes=len(work.x),
    fraction_evaluate=0.0,
  )
  result = strategy.start(
    grid=grid,
    initial_arrays=ArrayRecord([start.copy()]),
    num_rounds=total_rounds(work.num_rounds),
  )
  rounds.advance()
  weights = torch.from_numpy(result.arrays.to_numpy_ndarrays()[0])
  predicted = torch_by_hand.predict(model, weights, work)
  work.print_result(rounds.seconds, predicted)


def _train(message: Message, context: Context, *, path: str) -> Message:
  """Trains one client."""
  work, model = _load(path)
  client = int(context.node_config['partition-id'])
  start = torch.from_numpy(message.content['arrays'].to_numpy_ndarrays()[0])
  update = torch_by_hand.local_update(model, start, work, client)
  content = RecordDict(
    dict(
      arrays=ArrayRecord([(start + update).numpy()]),
      metrics=MetricRecord({'num-examples': 1}),
    )
  )
  return Message(content=content, reply_to=message)


@functools.cache
def _load(path: str):
  """Returns the work and a model, once in each actor."""
  torch.set_num_threads(1)
  work = Work(path)
  return work, torch_by_hand.create_model(work)
