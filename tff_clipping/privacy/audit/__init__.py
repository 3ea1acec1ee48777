"""What a pipeline leaks at least, against what its plan claims.

Needs no TensorFlow.
"""

from tff_clipping.privacy.audit import one_run
from tff_clipping.privacy.audit.attacks import (
  estimate_epsilon,
  measure_true_positive_rate,
  score_releases,
)
from tff_clipping.privacy.audit.canaries import Canaries
from tff_clipping.privacy.audit.result import (
  AttackResult,
  AuditResult,
  add_canaries_to_plan,
  add_canaries_to_population,
  audit_plan,
)
from tff_clipping.privacy.audit.trade_off import (
  AttackBounds,
  GaussianTradeOff,
  TradeOff,
  bound_attacks,
  compute_gaussian_epsilon,
  compute_trade_off,
)

__all__ = [
  'AttackBounds',
  'AttackResult',
  'AuditResult',
  'Canaries',
  'GaussianTradeOff',
  'TradeOff',
  'add_canaries_to_plan',
  'add_canaries_to_population',
  'audit_plan',
  'bound_attacks',
  'compute_gaussian_epsilon',
  'compute_trade_off',
  'estimate_epsilon',
  'measure_true_positive_rate',
  'one_run',
  'score_releases',
]
