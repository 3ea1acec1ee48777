"""What a client does in the round of `flower_peer`.

A module of its own, for Ray's actors to import.
"""

import functools

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict

from benchmarks.peers import torch_by_hand, work_file


def train(message: Message, context: Context, *, path: str) -> Message:
  """Trains one client."""
  torch.set_num_threads(1)
  work, model, weights = _loaded(path)
  client = int(context.node_config['partition-id'])
  start = torch.from_numpy(message.content['arrays'].to_numpy_ndarrays()[0])
  torch_by_hand.local_update(
    model,
    weights,
    start,
    work.batches(client, np.random.default_rng()),
    work.settings['client_learning_rate'],
  )
  content = RecordDict(
    dict(
      arrays=ArrayRecord([weights.numpy().copy()]),
      metrics=MetricRecord({'num-examples': 1}),
    )
  )
  return Message(content=content, reply_to=message)


@functools.cache
def _loaded(path: str):
  """Returns the work and a model, once in each actor."""
  work = work_file.read(path)
  return work, *torch_by_hand.create_flat_model(work)
