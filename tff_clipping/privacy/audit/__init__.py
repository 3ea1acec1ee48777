"""What a pipeline leaks at least, against what its plan claims.

Needs no TensorFlow.
"""

from tff_clipping.privacy.audit import one_run, one_shot, thresholds
from tff_clipping.privacy.audit.attacks import (
  largest_changes,
  log_likelihood_ratios,
  score_releases,
)
from tff_clipping.privacy.audit.canaries import Canaries
from tff_clipping.privacy.audit.result import (
  AttackResult,
  AuditResult,
  add_canaries_to_plan,
  add_canaries_to_population,
  audit_plan,
  audited_relation,
)
from tff_clipping.privacy.audit.trade_off import (
  GaussianTradeOff,
  TradeOff,
  compute_gaussian_epsilon,
  compute_gaussian_mu,
  compute_trade_off,
)

__all__ = [
  'AttackResult',
  'AuditResult',
  'Canaries',
  'GaussianTradeOff',
  'TradeOff',
  'add_canaries_to_plan',
  'add_canaries_to_population',
  'audit_plan',
  'audited_relation',
  'compute_gaussian_epsilon',
  'compute_gaussian_mu',
  'compute_trade_off',
  'largest_changes',
  'log_likelihood_ratios',
  'one_run',
  'one_shot',
  'score_releases',
  'thresholds',
]
