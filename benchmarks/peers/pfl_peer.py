"""The round in pfl: its federated averaging, in a process for each core.

  python -m torch.distributed.run --standalone --nproc_per_node=2 \
      -m benchmarks.peers.pfl_peer WORK.npz

`local_num_steps` of pfl stops at the end of a client's data without saying so.
So a client's data here are Q full batches, drawn before the first round; the
passes are shuffled as elsewhere, but the same in every round.
"""

import os
import sys

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from benchmarks.peers import torch_by_hand
from benchmarks.peers.work_file import Work
from benchmarks.turns import Rounds, total_rounds


def main(path: str) -> None:
  """Runs all rounds and prints the result."""
  torch.set_num_threads(1)
  # The processes must draw the same cohorts, which they share out.
  np.random.seed(0)
  work = Work(path)
  module = _Module(torch_by_hand.create_model(work))
  users = [_user(work, number) for number in range(len(work.x))]
  data = FederatedDataset(
    users.__getitem__,
    get_user_sampler('minimize_reuse', list(range(len(users)))),
  )
  is_first = os.environ.get('RANK', '0') == '0'
  rounds = Rounds(work.num_rounds) if is_first else None
  num_rounds = total_rounds(work.num_rounds)
  FederatedAveraging().run(
    algorithm_params=NNAlgorithmParams(
      central_num_iterations=num_rounds,
      evaluation_frequency=num_rounds + 1,
      train_cohort_size=len(users),
      val_cohort_size=None,
    ),
    backend=SimulatedBackend(training_data=data, val_data=None),
    model=PyTorchModel(
      module,
      torch.optim.SGD,
      torch.optim.SGD(module.parameters(), lr=1.0),
    ),
    model_train_params=NNTrainHyperParams(
      local_num_epochs=None,
      local_num_steps=work.local_steps,
      local_learning_rate=work.learning_rate,
      local_batch_size=work.batch_size,
    ),
    model_eval_params=NNEvalHyperParams(local_batch_size=None),
    callbacks=[_Turns(rounds)],
  )
  if rounds is not None:
    weights = parameters_to_vector(module.parameters()).detach()
    predicted = torch_by_hand.predict(module, weights, work)
    work.print_result(rounds.seconds, predicted)


class _Module(torch.nn.Module):
  """A model with the loss and the metrics that pfl asks for."""

  def __init__(self, inner: torch.nn.Module):
    super().__init__()
    self.inner = inner

  def forward(self, x):
    return self.inner(x)

  def loss(self, x, y, **kwargs):
    return functional.cross_entropy(self(x), y)

  def metrics(self, x, y, **kwargs):
    return {'loss': Weighted(self.loss(x, y).item() * len(y), len(y))}


class _Turns(TrainingProcessCallback):
  """Lets all processes begin a round when the turn of the first one comes."""

  def __init__(self, rounds: Rounds | None):
    self.rounds = rounds

  def on_train_begin(self, *, model):
    self._advance()
    return Metrics()

  def after_central_iteration(
    self, aggregate_metrics, model, *, central_iteration
  ):
    self._advance()
    return False, Metrics()

  def _advance(self):
    if self.rounds is not None:
      self.rounds.advance()
    if torch.distributed.is_initialized():
      torch.distributed.barrier()


def _user(work: Work, number: int) -> Dataset:
  """Returns a client with exactly as many examples as a round takes."""
  x, y = work.batches(number, np.random.default_rng(number))
  x = torch.from_numpy(x.reshape(-1, *x.shape[2:]))
  y = torch.from_numpy(y.reshape(-1)).long()
  return Dataset((x, y), user_id=str(number))


if __name__ == '__main__':
  main(sys.argv[1])
