"""DP-FedAvg (Sec. 3), whose rounds have noise of their own."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from tasks.algorithms.algorithm import names_of
from tasks.algorithms.fed_avg import ClippedFedAvg
from tasks.settings.setting_fields import (
  LARGEST_SEED,
  at_least,
  positive,
  setting,
)
from tff_clipping import privacy
from tff_clipping.privacy import audit
from tff_clipping.privacy.accounting import ranges

# Fewer canaries show nothing, and their coins might all fall the same way.
_MIN_AUDIT_CANARIES = 10
# The smallest of the models has 159,010 parameters: room for the directions of
# twice as many.
_MAX_AUDIT_CANARIES = 2**16


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditSettings:
  """The settings of an audit."""

  audit_canaries: int | None = setting(
    'K: audit a dp_fed_avg run with about K canaries among its clients and as '
    'many held out. Not private; see docs/audit.md.',
    None,
    check=at_least(_MIN_AUDIT_CANARIES),
  )
  audit_seed: int | None = setting(
    'For the canaries; else fresh entropy, which config.json keeps.',
    None,
    check=at_least(0, LARGEST_SEED),
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacySettings:
  """The settings of a budget, and of the noise that meets it."""

  target_epsilon: float | None = setting(
    'The budget, which sets the noise.', None, check=positive
  )
  target_delta: float | None = setting("The budget's delta.", None)
  noise_multiplier: float | None = setting(
    'Noise on the sum over c, in place of --target_epsilon.',
    None,
    check=positive,
  )
  noise_seed: int | None = setting(
    'Repeatable noise, for tests alone; else fresh entropy.',
    None,
    check=at_least(0, LARGEST_SEED),
  )


class GaussianFedAvg(ClippedFedAvg):
  """The mean of bounded updates with Gaussian noise, added at the server.

  A plan charges for its rounds.

  Attributes:
    not_audited: Why it cannot be audited; empty if it can.
    plan_type: The kind of its plans.
    plans_quickly: Whether a plan takes no more than a second to find.
    noise_is_continuous: Whether what is proved of continuous noise holds.
  """

  name = 'dp_fed_avg'
  summary = 'clips updates and adds noise'
  settings = ClippedFedAvg.settings | names_of(PrivacySettings, AuditSettings)
  is_private = True
  samplings = ('poisson', 'random_allocation', 'fixed_size', 'paper')
  sampling_reason = (
    ': others do not hide who takes part, or are drawn for noise that is '
    'correlated between rounds, as of `mechanism` banded'
  )
  plan_type: type[privacy.BasePlan] = privacy.PrivacyPlan
  plans_quickly = True
  noise_is_continuous = True

  @property
  def not_audited(self) -> str:
    return (
      '' if self.bound.is_constant else 'whose clipping norm is not constant'
    )

  @property
  def refuses(self) -> Mapping[str, str]:
    names = names_of(AuditSettings) if self.not_audited else ()
    return {**super().refuses, **dict.fromkeys(names, self.not_audited)}

  def check(self) -> None:
    super().check()
    config = self.config
    if config.target_delta is None:
      raise ValueError(f'`target_delta` must be given for {self.name}.')
    ranges.check_target_delta(config.target_delta)
    if (config.target_epsilon is None) == (config.noise_multiplier is None):
      raise ValueError(
        f'{self.name} takes one of `target_epsilon` and `noise_multiplier`, '
        f'found {config.target_epsilon} and {config.noise_multiplier}.'
      )
    if config.target_epsilon is not None:
      ranges.check_target_epsilon(config.target_epsilon)
    else:
      ranges.check_noise_multiplier(config.noise_multiplier)
    self._check_audit()

  def _check_audit(self) -> None:
    config = self.config
    if config.audit_canaries is None:
      if config.audit_seed is not None:
        raise ValueError(
          '`audit_seed` must be given with `audit_canaries`, found '
          f'{config.audit_seed} without.'
        )
      return
    if self.sensitivity is None:
      raise ValueError(
        '`clipping_norm` must be given with `audit_canaries`: it is the unit '
        f'of what a canary moves; found {config.audit_canaries} without.'
      )
    if config.audit_canaries > _MAX_AUDIT_CANARIES:
      raise ValueError(
        f'`audit_canaries` must be at most {_MAX_AUDIT_CANARIES}, so that each '
        f'has a direction of its own, found {config.audit_canaries}.'
      )
    if config.simulation_diagnostics:
      raise ValueError(
        '`simulation_diagnostics` must not be given with `audit_canaries`, '
        'whose updates would be among those of the clients.'
      )

  def find_plan(
    self, num_clients: int, ledger: pathlib.Path | None = None
  ) -> privacy.BasePlan:
    """Returns the plan of a run; that of an audited one counts canaries too.

    That of a run that goes on is in its ledger: nothing is searched for again.

    Args:
      num_clients: The clients of its data, without canaries.
      ledger: The ledger of the run; `None` for a new plan.

    Raises:
      DamagedLedgerError: If the ledger is not what was written.
      ValueError: If the plan in it has other settings, or no plan is possible.
    """
    config = self.config
    settings = self._plan_settings(num_clients)
    kept = None
    if ledger is not None:
      asked = dict(settings)
      if config.audit_canaries is not None:
        asked['num_clients'], asked['clients_per_round'] = (
          audit.add_canaries_to_population(
            num_clients, config.clients_per_round, 2 * config.audit_canaries
          )
        )
      kept = privacy.read_plan(ledger, **asked)
    if kept is None:
      plan = self._create_plan(settings)
      if config.audit_canaries is None:
        return plan
      return audit.add_canaries_to_plan(plan, 2 * config.audit_canaries)
    mechanism = 'gaussian'
    if isinstance(kept, privacy.CorrelatedNoisePlan):
      mechanism = getattr(kept.strategy, 'inner', kept.strategy).kind
    if mechanism != config.mechanism:
      raise ValueError(
        f'`mechanism` must be {mechanism}, which the ledger {ledger} charges '
        f'for, found {config.mechanism}.'
      )
    return kept

  def _create_plan(self, settings: dict[str, Any]) -> privacy.BasePlan:
    """Returns a new plan with these attributes."""
    if self.config.noise_multiplier is not None:
      return self.plan_type.from_noise_multiplier(**settings)
    return self.plan_type.from_target_epsilon(**settings)

  def _plan_settings(self, num_clients: int) -> dict[str, Any]:
    """Returns the attributes of a plan that are given, not searched for."""
    config = self.config
    noise = (
      'target_epsilon'
      if config.noise_multiplier is None
      else 'noise_multiplier'
    )
    return dict(
      num_clients=num_clients,
      clients_per_round=config.clients_per_round,
      num_rounds=config.num_rounds,
      target_delta=config.target_delta,
      sampling=config.sampling,
      accountant=config.accountant,
      **{noise: getattr(config, noise)},
    )

  def noise_key(self) -> Any:
    """Returns the key of the noise, as the factories of noise take it."""
    seed = self.config.noise_seed
    return None if seed is None else (0, seed)

  def create_aggregator(self, plan, model_fn, user_aggregator=None):
    return self.bound.create_private_mean(
      model_fn,
      **plan.aggregator_parameters._asdict(),
      noise_key=self.noise_key(),
    )
