"""Privacy plans, accountants and ledgers. Needs no TensorFlow."""

from tff_clipping.adaptive_noise import (
  collapse_noise_multipliers,
  split_noise_multiplier,
)
from tff_clipping.privacy.accounting.accountants import ACCOUNTANTS
from tff_clipping.privacy.accounting.gaussian_mechanism import (
  gaussian_delta,
  gaussian_epsilon,
  gaussian_noise_multiplier,
)
from tff_clipping.privacy.accounting.ranges import (
  DeltaTooLargeWarning,
  DeltaTooSmallWarning,
)
from tff_clipping.privacy.accounting.sampled_gaussian import Relation
from tff_clipping.privacy.correlated_noise import (
  NoiseStrategy,
  Participation,
  banded_strategy,
  blt_strategy,
  identity_strategy,
)
from tff_clipping.privacy.correlated_noise.by_name import (
  MECHANISMS,
  build_strategy,
)
from tff_clipping.privacy.ledger.ledger import (
  BudgetExhaustedError,
  DamagedLedgerError,
  LedgerInUseError,
  PrivacyLedger,
  RoundChargedError,
)
from tff_clipping.privacy.ledger.ledger_contents import (
  LedgerContents,
  read_ledger,
  read_plan,
)
from tff_clipping.privacy.ledger.spending import compute_spending
from tff_clipping.privacy.plans.base_plan import AggregatorParameters, BasePlan
from tff_clipping.privacy.plans.correlated_plan import (
  CorrelatedNoisePlan,
  SeparatedSamplerParameters,
)
from tff_clipping.privacy.plans.plan import (
  PrivacyPlan,
  SamplerParameters,
  ShareParameters,
  calibrate_noise_multiplier,
  compute_delta,
  compute_epsilon,
  compute_max_rounds,
)
from tff_clipping.privacy.plans.plan_json import plan_from_json, plan_to_json
from tff_clipping.privacy.plans.together import Spending, compose_together
from tff_clipping.privacy.plans.words import describe_plan
from tff_clipping.theory.theorem_2 import theorem_2_constant, theorem_2_stddev

__all__ = [
  'ACCOUNTANTS',
  'AggregatorParameters',
  'BasePlan',
  'BudgetExhaustedError',
  'RoundChargedError',
  'CorrelatedNoisePlan',
  'DamagedLedgerError',
  'DeltaTooLargeWarning',
  'DeltaTooSmallWarning',
  'LedgerContents',
  'LedgerInUseError',
  'MECHANISMS',
  'NoiseStrategy',
  'Participation',
  'PrivacyLedger',
  'PrivacyPlan',
  'Relation',
  'SamplerParameters',
  'SeparatedSamplerParameters',
  'ShareParameters',
  'Spending',
  'banded_strategy',
  'blt_strategy',
  'build_strategy',
  'calibrate_noise_multiplier',
  'collapse_noise_multipliers',
  'compose_together',
  'compute_delta',
  'compute_epsilon',
  'compute_max_rounds',
  'compute_spending',
  'describe_plan',
  'gaussian_delta',
  'gaussian_epsilon',
  'gaussian_noise_multiplier',
  'identity_strategy',
  'plan_from_json',
  'plan_to_json',
  'read_ledger',
  'read_plan',
  'split_noise_multiplier',
  'theorem_2_constant',
  'theorem_2_stddev',
]
