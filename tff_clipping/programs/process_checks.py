"""What a process must be like for a ledger to charge for what it releases.

Seen from the type of its state alone. That it clips, and how much noise it
adds, no type tells: the plan's parameters go into the aggregator.
"""

from collections.abc import Iterator

import numpy as np
import tensorflow_federated as tff

from tff_clipping.aggregators import private_reports
from tff_clipping.privacy import BasePlan, CorrelatedNoisePlan

# Of the clients' work, what `learning.build_fed_avg` keeps to measure angles:
# a model that was released.
_RELEASED = 'previous_model'


def check_process(
  process: tff.learning.templates.LearningProcess, plan: BasePlan
) -> None:
  """Raises if a plan does not charge for what a process releases.

  Args:
    process: The process.
    plan: The plan that is charged.

  Raises:
    ValueError: If the process adds no noise, or noise of another kind than the
      plan's; if it adapts a norm that no noise covers; or if its clients' work
      keeps a second aggregate of the clients, such as the mean gradient of
      Mime.
  """
  state = process.state_type.member
  work = getattr(state, 'client_work', None)
  # What noises something else than the updates is no noise of the plan's.
  aggregate = getattr(state, 'aggregator', state)
  if not private_reports.adds_noise(aggregate):
    raise ValueError(
      '`process` must add noise where a ledger is charged, found the state '
      f'{aggregate}. It has the state of no factory of ours or of TFF that '
      'does; one of your own has a field `privacy_noise`: empty where the '
      'noise is fresh in each round, and else with a `draw`, or with `slots` '
      'where it is correlated between rounds.'
    )
  private_reports.check_norms_are_charged('process', state)
  is_correlated = private_reports.correlates_noise(state)
  if is_correlated != isinstance(plan, CorrelatedNoisePlan):
    raise ValueError(
      "`process` must have the plan's kind of noise, found noise that is "
      f'{"" if is_correlated else "not "}correlated between rounds, and a '
      f'{type(plan).__name__}.'
    )
  if work is None:
    return
  # Numbers are learning rates and rounds.
  arrays = [
    kept
    for kept in _tensors(work)
    if np.issubdtype(kept.dtype, np.floating) and len(kept.shape)
  ]
  if arrays or private_reports.adds_noise(work):
    raise ValueError(
      "`process` must keep no second aggregate of the clients' data, found the "
      f"state {work} of the clients' work: the plan does not charge for it."
    )


def _tensors(kept: tff.Type | None) -> Iterator[tff.TensorType]:
  """Yields the tensors of a state, but for the model that was released."""
  if isinstance(kept, tff.TensorType):
    yield kept
  elif isinstance(kept, tff.StructType):
    for name, element in tff.structure.iter_elements(kept):
      if name != _RELEASED:
        yield from _tensors(element)
