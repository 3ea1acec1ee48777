"""The first phase of a run, which estimates the clipping norm.

Its rounds are those of a `TrainingProgram` whose process releases noised bits
and leaves the model as it is. So the norms are those of updates from the
initial model: no update is released before its norm is bounded, and a round
costs what a bit costs. Training then begins with a constant clip, for which
everything in this package is made.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow_federated as tff
import tree

from tff_clipping import aggregators
from tff_clipping.aggregators import norm_quantile
from tff_clipping.aggregators.parts import gaussian_draws
from tff_clipping.privacy.ledger.ledger import PrivacyLedger
from tff_clipping.privacy.ledger.ledger_phase import LedgerPhase
from tff_clipping.privacy.plans.base_plan import BasePlan
from tff_clipping.privacy.plans.correlated_plan import CorrelatedNoisePlan
from tff_clipping.programs.clients import client_sampling
from tff_clipping.programs.clients.client_sampling import ClientSampler
from tff_clipping.programs.training.checkpoints import Checkpoints
from tff_clipping.programs.training.training_program import (
  StopReason,
  TrainingProgram,
  TrainingResult,
)
from tff_clipping.programs.training.watchers import RoundWatcher


@dataclasses.dataclass(frozen=True)
class ThresholdEstimate:
  """How the first phase ended.

  Attributes:
    result: How its program ended.
    norm: The estimated quantile of the norms, which may be released; `None`
      where the phase did not end.
  """

  result: TrainingResult
  norm: float | None


def build_bits_aggregator(
  plan: BasePlan,
  *,
  noise_key: gaussian_draws.NoiseKey = 'drawn',
  is_secure: bool = False,
  **settings: Any,
) -> tff.aggregators.UnweightedAggregationFactory:
  """Returns the aggregator of the first phase, with the noise of its plan.

  Args:
    plan: A plan with a `threshold`.
    noise_key: As for `dp_mean_factory`; another one than that of training.
    is_secure: Whether the bits are summed by `secure_sum_factory`.
    **settings: Further arguments of `norm_quantile_factory`.

  Raises:
    ValueError: If the plan has no `threshold`, or a setting is out of range.
  """
  first = plan.build_threshold_plan()
  noise: dict[str, Any] = dict(
    clipping_norm=norm_quantile.BIT_NORM,
    noise_key=noise_key,
    sum_factory=(
      aggregators.secure_sum_factory(norm_quantile.BIT_NORM)
      if is_secure
      else None
    ),
    **first.aggregator_parameters._asdict(),
  )
  if isinstance(first, CorrelatedNoisePlan):
    mean = aggregators.correlated_dp_mean_factory(
      strategy=first.strategy, **noise
    )
  else:
    mean = aggregators.dp_mean_factory(**noise)
  return aggregators.norm_quantile_factory(mean, **settings)


def run_threshold_rounds(
  process: tff.learning.templates.LearningProcess,
  sampler: ClientSampler,
  ledger: PrivacyLedger,
  checkpoints: Checkpoints,
  *,
  watchers: Sequence[RoundWatcher] = (),
  client_value: Callable[[str], Any] = lambda client_id: client_id,
  rounds_per_checkpoint: int = 1,
  initial_weights: tff.learning.models.ModelWeights | None = None,
) -> ThresholdEstimate:
  """Runs the rounds of the first phase that are not done yet.

  Args:
    process: Trains with what `build_bits_aggregator` returned.
    sampler: That of the plan, for both phases.
    ledger: That of the run, whose plan has a `threshold`.
    checkpoints: Where states are kept; not those of training.
    watchers: As for `TrainingProgram`.
    client_value: As there.
    rounds_per_checkpoint: As there.
    initial_weights: As there; those that training begins from.

  Returns:
    The estimate; that of the checkpoint where nothing was left to do.

  Raises:
    StorageError, ValueError, RuntimeError, RoundError: As
      `TrainingProgram.run`.
  """
  phase = LedgerPhase(ledger, 'threshold')
  result = TrainingProgram(
    process=process,
    sampler=sampler,
    num_rounds=phase.plan.num_rounds,
    evaluate=None,
    checkpoints=checkpoints,
    watchers=watchers,
    client_value=client_value,
    rounds_per_checkpoint=rounds_per_checkpoint,
    ledger=phase,
    initial_weights=initial_weights,
  ).run()
  if result.reason is not StopReason.FINISHED:
    return ThresholdEstimate(result, None)
  (norm,) = [
    float(leaf)
    for path, leaf in tree.flatten_with_path(result.state)
    if path[-1] == norm_quantile.ESTIMATE
  ]
  return ThresholdEstimate(result, norm)


def of_training(
  sampler: ClientSampler, ledger: PrivacyLedger
) -> tuple[ClientSampler, LedgerPhase]:
  """Returns the sampler and the ledger of the training rounds that follow.

  For a `TrainingProgram`, or a `PrivateProcess`, which count them from 1.

  Args:
    sampler: That of the plan, for both phases.
    ledger: That of the run, whose plan has a `threshold`.

  Raises:
    ValueError: If the plan has no `threshold`.
  """
  phase = LedgerPhase(ledger, 'training')
  return client_sampling.LaterRounds(sampler, phase.first_round), phase
