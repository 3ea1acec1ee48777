"""A private run of rounds that count how often they ran.

What a ledger and a store make of the rounds is what tests claim of it.
"""

import collections

import numpy as np
import tensorflow_federated as tff

from tests.programs import noised_scalar
from tff_clipping import privacy
from tff_clipping.programs.clients.client_sampling import build_private_sampler
from tff_clipping.programs.training import private_rounds
from tff_clipping.programs.training.checkpoints import Checkpoints

Output = tff.learning.templates.LearningProcessOutput
FIRST = np.float32(0)


class Run:
  """A run in a folder whose programs end and begin again.

  A round adds 1 to the number of all runs of rounds, so that two runs of one
  round differ, as with fresh noise.
  """

  def __init__(self, folder, plan=None, seed=3):
    self.folder = folder
    folder.mkdir(exist_ok=True)
    self.plan = plan or noised_scalar.plan()
    self.sampler = build_private_sampler(
      self.plan, noised_scalar.IDS, seed=seed
    )
    self.num_runs = 0
    self.cohorts = []
    self.start()

  def start(self):
    """Begins another program in the folder."""
    self.ledger = privacy.PrivacyLedger(self.folder / 'ledger.jsonl', self.plan)
    self.store = Checkpoints(self.folder / 'outcomes')

  def kill(self):
    self.ledger.close()

  def restart(self, **kwargs):
    """Returns the round and the state from which another program goes on."""
    self.kill()
    self.start()
    return self.resume(**kwargs)

  def resume(self, **kwargs):
    return private_rounds.resume(self.ledger, self.store, FIRST, **kwargs)

  def next_fn(self, state, cohort):
    self.num_runs += 1
    self.cohorts.append(tuple(cohort))
    metrics = collections.OrderedDict(
      aggregator=noised_scalar.measured(self.plan)
    )
    return Output(np.float32(self.num_runs), metrics)

  def round(self, round_num, state, next_fn=None, **kwargs):
    """Runs a round; returns the state after it."""
    _, output = private_rounds.run_private_round(
      next_fn or self.next_fn,
      self.sampler,
      self.ledger,
      self.store,
      state=state,
      round_num=round_num,
      **kwargs,
    )
    return output.state

  def rounds(self, last):
    """Runs rounds 1 to `last`; returns the state after them."""
    state = FIRST
    for round_num in range(1, last + 1):
      state = self.round(round_num, state)
    return state

  def files(self):
    return sorted(path.name for path in self.store.folder.iterdir())

  def charged(self):
    return [(r.round_num, r.draw) for r in self.ledger.releases]
