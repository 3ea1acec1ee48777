"""A privacy plan for noise in each local step: its unit is one example."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import dp_accounting

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import (
  accountants,
  costs,
  ranges,
  sampled_gaussian,
  search,
  truncated_poisson,
)
from tff_clipping.privacy.correlated_noise import separated_sampling
from tff_clipping.privacy.plans import (
  obligations,
  plan_text,
  separated_plan,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExamplePlan(separated_plan.SeparatedPlan):
  """What the noised local steps of a client promise to one of its examples.

  Neighbouring data sets differ in one example of one client, which has it or
  not. Each of the client's Q steps in a round is a Gaussian mechanism on a
  Poisson sample of its examples; a client that takes part in k rounds has Q k
  of them. The epsilon is the largest over all clients: that of the most rounds
  in which a sampler lets a client take part, as `num_rounds` rounds of turns or
  epochs have them. It holds against the server, and whoever sees what single
  clients send. Who takes part when is public, and nothing is claimed for the
  noise of other clients.

  A round is charged when all of its clients have sent what they send; that some
  did before a program was killed in between, no ledger knows. It is not run
  again with other clients: they would take part once more, and with coins and
  noise that are fresh no round has its bits again.

  It does not protect a client: someone with n examples has n times the epsilon
  of one, and more. Nor does it protect an example that several clients hold.

  Attributes:
    num_clients: The paper's N, the population.
    clients_per_round: The paper's P, the most clients in a cohort.
    num_rounds: The paper's T, the rounds that the plan is made for.
    target_delta: The delta of each client's examples.
    noise_multiplier: z, the standard deviation of the noise on the sum of a
      step's clipped gradients over their clipping norm C.
    examples_per_client: n, the most examples that a client may have, on either
      of two neighbouring data sets; public.
    batch_size: The paper's batch size B, the expected number of examples in a
      step of a client with n; from 1 to n. An example joins with probability
      B / n, whatever the number of examples a client has.
    local_steps: The paper's Q.
    max_batch_size: M, to which a larger batch is cut; at least B. If it is not
      given, the least that costs 0.5 % of `target_delta`.
    min_separation: b. From one participation of a client to its next there are
      at least so many rounds. 1 with 'shuffled_epochs'.
    sampling: 'min_separation': the population is split into b groups, which
      take turns. 'shuffled_epochs': everybody comes once in each epoch of
      ceil(N / P) rounds.
    accountant: 'rdp' or 'pld'.
    target_epsilon: The epsilon that must not be passed; None means that of
      `num_rounds` rounds.

  Raises:
    TypeError: If an attribute is of the wrong kind.
    ValueError: If an attribute is out of range, `num_rounds` rounds cost more
      than `target_epsilon`, or batches above M cost all of `target_delta`.

  Source: Truex et al. 2019, "A hybrid approach to privacy-preserving federated
    learning"; Abadi et al. 2016 (arXiv 1607.00133); `truncated_poisson` for M.
  """

  examples_per_client: int
  batch_size: int
  local_steps: int
  max_batch_size: int | None = None
  min_separation: int = 1
  sampling: str = 'min_separation'
  accountant: str = 'rdp'

  @property
  def unit(self) -> str:
    """What is protected: one example of one client."""
    return 'example'

  @property
  def sampling_prob(self) -> float:
    """p = B / n: an example's chance to be in a step."""
    return self._step.cohorts.sampling_prob

  @property
  def relation(self) -> sampled_gaussian.Relation:
    """Adding or removing one example of one client."""
    return sampled_gaussian.Relation.ADD_OR_REMOVE_ONE

  @property
  def dp_event(self) -> dp_accounting.DpEvent:
    """The steps of a client that comes most often in `num_rounds` rounds.

    Batches above M are charged besides, by delta.
    """
    return dp_accounting.SelfComposedDpEvent(
      self._step.dp_event, self.local_steps * self.max_participations
    )

  @property
  def max_rounds(self) -> int:
    """The most rounds that are accounted for."""
    return ranges.MAX_ROUNDS // self.local_steps

  @property
  def running_sum_error(self) -> float:
    """Of the mean of P clients' noise, in one step of a coordinate.

    Independent between rounds, as that of a `PrivacyPlan`; see the base class.
    """
    of_round = self.noise_multiplier * math.sqrt(
      self.local_steps * self.clients_per_round
    )
    return of_round * math.sqrt((self.num_rounds + 1) / 2)

  def released_mechanism(
    self, num_rounds: int
  ) -> tuple[sampled_gaussian.SampledGaussian, int]:
    """Returns a step of a client, and how many of them; see the base class."""
    count = self.cohorts.participation.count(num_rounds)
    return self._step, self.local_steps * count

  @property
  def aggregator_parameters(self) -> obligations.AggregatorParameters:
    """Raises ValueError: the noise is in the steps; see `step_parameters`."""
    raise ValueError(
      '`aggregator_parameters` must be those of another plan, found an '
      'ExamplePlan, whose noise is in the local steps: `step_parameters` are '
      'for `learning.steps.NoisedSgd`.'
    )

  @property
  def step_parameters(self) -> obligations.StepParameters:
    """What each local step has to do, for any clipping norm."""
    most = self._step.cohorts.max_clients_per_round
    assert most is not None  # Batches are bounded.
    return obligations.StepParameters(
      noise_multiplier=self.noise_multiplier,
      sampling_prob=self.sampling_prob,
      expected_batch_size=self.batch_size,
      max_batch_size=most,
    )

  @classmethod
  def _build_cohorts(
    cls, attributes: Mapping[str, Any]
  ) -> separated_sampling.SeparatedCohorts:
    argument_checks.check_choice(
      'sampling', attributes['sampling'], ('min_separation', 'shuffled_epochs')
    )
    return super()._build_cohorts(attributes)

  @classmethod
  def _count_steps(cls, attributes: Mapping[str, Any]) -> int:
    """Returns Q k, the steps of a client that comes most often."""
    num_rounds = ranges.check_num_rounds(attributes['num_rounds'])
    count = cls._build_cohorts(attributes).participation.count(num_rounds)
    return _check_steps(attributes['local_steps']) * count

  @classmethod
  def _find_noise(cls, given: dict[str, Any]) -> 'ExamplePlan':
    target = ranges.check_target_epsilon(given['target_epsilon'])
    steps = cls._count_steps(given)
    batches = _build_batches(given, lambda _: (steps, target))
    _check_tails(batches, steps, target, given['target_delta'])
    found = search.find_noise_multiplier(
      batches,
      given['accountant'],
      num_rounds=steps,
      target_epsilon=target,
      target_delta=given['target_delta'],
    )
    return cls(
      **{
        **given,
        'max_batch_size': batches.max_clients_per_round,
        'noise_multiplier': found,
      }
    )

  @classmethod
  def _find_largest_cohort(cls, given: dict[str, Any]) -> int:
    raise ValueError(
      '`clients_per_round` must be given for an ExamplePlan: the noise of an '
      "example's steps does not depend on it."
    )

  def _check_attributes(self) -> dict[str, Any]:
    accountants.check_accountant(self.accountant)
    local_steps = _check_steps(self.local_steps)
    batches = self._step.cohorts
    return {
      **dataclasses.asdict(self.cohorts),
      'num_rounds': argument_checks.check_integer(
        'num_rounds', self.num_rounds, at_least=1, at_most=self.max_rounds
      ),
      'local_steps': local_steps,
      'target_delta': ranges.check_target_delta(self.target_delta),
      'noise_multiplier': self._step.noise_multiplier,
      'examples_per_client': batches.num_clients,
      'batch_size': batches.clients_per_round,
      'max_batch_size': batches.max_clients_per_round,
    }

  def _compute_epsilon(self, num_rounds: int) -> float:
    _, count = self.released_mechanism(num_rounds)
    return self._cost.compute_epsilon(count, self.target_delta)

  def _explain_no_epsilon(self) -> str:
    poisson = dataclasses.replace(
      self._step.cohorts,
      sampling='poisson',
      min_clients_per_round=None,
      max_clients_per_round=None,
    )
    steps, epsilon = self._compute_poisson_cost(poisson)
    if math.isfinite(epsilon):
      _check_tails(self._step.cohorts, steps, epsilon, self.target_delta)
    return super()._explain_no_epsilon()

  def _describe(self) -> str:
    return plan_text.describe_examples(self)

  def _derive(self) -> dict[str, Any]:
    return {
      'mechanism': 'noised_local_steps',
      'unit': self.unit,
      'max_participations': self.max_participations,
      'sampling_prob': self.sampling_prob,
    }

  @functools.cached_property
  def _step(self) -> sampled_gaussian.SampledGaussian:
    """One local step, whose cohort is the batch."""
    batches = _build_batches(
      vars(self),
      lambda poisson: self._compute_poisson_cost(poisson),
    )
    return sampled_gaussian.SampledGaussian(batches, self.noise_multiplier)

  @functools.cached_property
  def _cost(self) -> costs.ComposedCost:
    return accountants.compose([(self._step, 1)], self.accountant)

  def _compute_poisson_cost(
    self, poisson: sampled_gaussian.Cohorts
  ) -> tuple[int, float]:
    """Returns the steps, and their epsilon at the delta that tails leave."""
    mechanism = sampled_gaussian.SampledGaussian(poisson, self.noise_multiplier)
    cost = accountants.compose([(mechanism, 1)], self.accountant)
    left = truncated_poisson.without_tails(self.target_delta)
    steps = self._count_steps(vars(self))
    return steps, cost.compute_epsilon(steps, left)


def _check_steps(local_steps: Any) -> int:
  return argument_checks.check_integer(
    'local_steps', local_steps, at_least=1, at_most=ranges.MAX_ROUNDS
  )


def _check_tails(
  batches: sampled_gaussian.Cohorts,
  num_steps: int,
  epsilon: float,
  target_delta: float,
) -> None:
  """Raises if batches that are cut cost all of delta."""
  try:
    truncated_poisson.compute_poisson_delta(
      batches, num_steps, epsilon, target_delta
    )
  except ValueError:
    _, largest = truncated_poisson.choose_bounds(
      batches,
      num_rounds=num_steps,
      epsilon=epsilon,
      target_delta=target_delta,
    )
    raise ValueError(
      f'`max_batch_size` must be larger, found {batches.max_clients_per_round}:'
      f' larger batches in {num_steps} steps cost more than `target_delta` '
      f'{target_delta:g}; {largest} would do.'
    ) from None


def _build_batches(
  attributes: Mapping[str, Any], compute_cost: Any
) -> sampled_gaussian.Cohorts:
  """Returns the batches of a step as cohorts of examples, M chosen."""
  examples = argument_checks.check_integer(
    'examples_per_client', attributes['examples_per_client'], at_least=1
  )
  batch = argument_checks.check_integer(
    'batch_size', attributes['batch_size'], at_least=1, at_most=examples
  )
  largest = attributes['max_batch_size']
  if largest is not None:
    largest = argument_checks.check_integer(
      'max_batch_size', largest, at_least=batch
    )
  return truncated_poisson.build_cohorts(
    sampling='truncated_poisson',
    num_clients=examples,
    clients_per_round=batch,
    # An empty batch is a step like others.
    min_clients_per_round=0,
    max_clients_per_round=largest,
    target_delta=attributes['target_delta'],
    compute_cost=compute_cost,
  )
