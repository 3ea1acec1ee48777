"""Which settings of a run go together, each being in its range."""

from typing import Any

from tasks.experiments.experiment_table import ALGORITHMS
from tasks.settings.setting_fields import one_of
from tff_clipping import argument_checks, privacy
from tff_clipping.privacy.accounting import ranges
from tff_clipping.privacy.correlated_noise import separated_sampling

SAMPLINGS = ('poisson', 'fixed_size', 'shuffled_epochs', 'round_robin')
PRIVATE_SAMPLINGS = ('poisson', 'fixed_size', 'paper')
# Noise that is correlated between rounds, and the ways to draw cohorts that
# hold a client to what it is charged for.
CORRELATED_MECHANISMS = tuple(
  name for name in privacy.MECHANISMS if name != 'gaussian'
)
CORRELATED_SAMPLINGS = separated_sampling.SAMPLINGS
# The smallest of the models has 159,010 parameters: room for the directions of
# twice as many.
MAX_AUDIT_CANARIES = 2**16


def check_together(config: Any) -> None:
  """Raises for the first settings that do not go together.

  Args:
    config: A `tasks.algorithms.experiment.ExperimentConfig`.

  Raises:
    TypeError: If a setting is of the wrong kind.
    ValueError: If it does not fit another.
  """
  _check_clipping(config)
  _check_privacy(config)
  _check_update_rounds(config)
  _check_estimates(config)
  _check_audit(config)


def _check_clipping(config: Any) -> None:
  if ALGORITHMS[config.algorithm].clips == 'nothing':
    if config.clipping_norm is not None:
      raise ValueError(
        f'`clipping_norm` must not be given for {config.algorithm}, which does '
        f'not clip, found {config.clipping_norm}; ce_fed_avg does.'
      )
  elif config.clipping == 'smooth':
    if config.clipping_norm is not None:
      raise ValueError(
        '`clipping_norm` must not be given for `clipping` smooth, whose '
        f'updates have norms below 1, found {config.clipping_norm}.'
      )
  elif config.clipping_norm is None and config.aggregator is None:
    raise ValueError(
      f'`clipping_norm` must be given for {config.algorithm}, or taken from a '
      'run of fed_avg by `clipping_norm_from`.'
    )
  _check_bounds(config)
  _check_aggregation(config)
  _check_aggregator(config)


def _check_bounds(config: Any) -> None:
  """Raises unless `clipping` is one that the algorithm has."""
  if config.clipping != 'fixed':
    if ALGORITHMS[config.algorithm].clips != 'updates':
      raise ValueError(
        f'`clipping` must be fixed for {config.algorithm}, which does not clip '
        f'updates, found {config.clipping}.'
      )
    if config.has_correlated_noise:
      raise ValueError(
        f'`clipping` must be fixed for `mechanism` {config.mechanism}, found '
        f'{config.clipping}.'
      )
  if (config.clipping == 'smooth') != (config.smoothing is not None):
    raise ValueError(
      '`smoothing` must be given with `clipping` smooth, and only then, '
      f'found {config.smoothing} for {config.clipping}.'
    )
  if config.target_quantile is not None:
    if config.clipping != 'adaptive':
      raise ValueError(
        '`target_quantile` must be given with `clipping` adaptive only, '
        f'found {config.target_quantile} for {config.clipping}.'
      )
    argument_checks.check_probability('target_quantile', config.target_quantile)


def _check_aggregation(config: Any) -> None:
  if config.aggregation == 'plain':
    return
  if ALGORITHMS[config.algorithm].clips != 'updates':
    raise ValueError(
      f'`aggregation` must be plain for {config.algorithm}: without a bound of '
      f'the updates there is none of their sum; found {config.aggregation}.'
    )
  if config.clipping == 'adaptive' or (
    config.aggregation == 'distributed' and config.clipping != 'fixed'
  ):
    raise ValueError(
      f'`clipping` must not be {config.clipping} for `aggregation` '
      f'{config.aggregation}, whose bounds are those of a constant c.'
    )
  if config.aggregation == 'secure':
    return
  if not config.is_private:
    raise ValueError(
      f'`aggregation` must be plain or secure for {config.algorithm}, which '
      'adds no noise, found distributed.'
    )
  if config.has_correlated_noise:
    raise ValueError(
      f'`aggregation` must be plain or secure for `mechanism` '
      f'{config.mechanism}, whose noise is drawn at the server, found '
      'distributed.'
    )
  if config.sampling != 'fixed_size':
    raise ValueError(
      '`sampling` must be fixed_size for `aggregation` distributed, found '
      f'{config.sampling}: shares of the noise tell how many clients took '
      'part, and what the noise is worth in integers is proved for fixed_size.'
    )
  if config.accountant != 'rdp':
    raise ValueError(
      '`accountant` must be rdp for `aggregation` distributed, found '
      f'{config.accountant}, which is not proved for sampled noise in integers.'
    )
  if config.noise_seed is not None:
    raise ValueError(
      '`noise_seed` must not be given for `aggregation` distributed, whose '
      f'clients draw the noise, found {config.noise_seed}.'
    )


def _check_aggregator(config: Any) -> None:
  if config.aggregator is None:
    return
  if ALGORITHMS[config.algorithm].clips == 'models':
    raise ValueError(
      f'`aggregator` must not be given for {config.algorithm}, which takes '
      f'the mean of clipped models, found {config.aggregator}.'
    )
  for name, ours in (('clipping', 'fixed'), ('aggregation', 'plain')):
    if getattr(config, name) != ours:
      raise ValueError(
        f'`{name}` must not be given with `aggregator`, which takes its '
        f'place, found {getattr(config, name)}.'
      )
  if config.has_correlated_noise:
    raise ValueError(
      '`aggregator` must be given for `mechanism` gaussian only, which is '
      f'what its plan charges, found {config.mechanism}.'
    )


def _check_privacy(config: Any) -> None:
  _check_sampling(config)
  if not config.is_private:
    for name in (
      'target_epsilon',
      'target_delta',
      'noise_multiplier',
      'noise_seed',
    ):
      if getattr(config, name) is not None:
        raise ValueError(
          f'`{name}` must not be given for {config.algorithm}, which adds no '
          f'noise, found {getattr(config, name)}; dp_fed_avg does.'
        )
    return
  if config.target_delta is None:
    raise ValueError('`target_delta` must be given for dp_fed_avg.')
  ranges.check_target_delta(config.target_delta)
  if (config.target_epsilon is None) == (config.noise_multiplier is None):
    raise ValueError(
      'dp_fed_avg takes one of `target_epsilon` and `noise_multiplier`, '
      'found '
      f'{config.target_epsilon} and {config.noise_multiplier}.'
    )
  if config.target_epsilon is not None:
    ranges.check_target_epsilon(config.target_epsilon)
  else:
    ranges.check_noise_multiplier(config.noise_multiplier)


def _check_sampling(config: Any) -> None:
  if not config.is_private:
    one_of(*SAMPLINGS)('sampling', config.sampling)
    if config.has_correlated_noise:
      raise ValueError(
        f'`mechanism` must not be given for {config.algorithm}, which adds no '
        f'noise, found {config.mechanism}; dp_fed_avg does.'
      )
    return
  if not config.has_correlated_noise:
    if config.sampling in CORRELATED_SAMPLINGS:
      is_secret = config.sampling == 'grouped_poisson'
      mechanisms = ('banded',) if is_secret else CORRELATED_MECHANISMS
      reason = (
        'its cohorts are drawn for noise that is correlated between rounds'
        if is_secret
        else 'it does not hide who takes part'
      )
      raise ValueError(
        f'`sampling` {config.sampling} must be given with `mechanism` '
        f'{", ".join(mechanisms)}: {reason}; found {config.mechanism}.'
      )
    one_of(*PRIVATE_SAMPLINGS)('sampling', config.sampling)
    return
  if config.sampling not in CORRELATED_SAMPLINGS:
    raise ValueError(
      f'`sampling` must be one of {", ".join(CORRELATED_SAMPLINGS)} for '
      f'`mechanism` {config.mechanism}, found {config.sampling!r}.'
    )
  if config.sampling == 'grouped_poisson' and config.mechanism != 'banded':
    raise ValueError(
      '`mechanism` must be banded for `sampling` grouped_poisson: for other '
      'noise, no exact accounting is known; found '
      f'{config.mechanism}.'
    )
  if config.sampling != 'shuffled_epochs' and config.min_separation == 1:
    raise ValueError(
      f'`min_separation` must be at least 2 for `sampling` {config.sampling}, '
      'and at most N / P, found 1.'
    )


def _check_update_rounds(config: Any) -> None:
  if len(set(config.update_rounds)) < len(config.update_rounds):
    raise ValueError(
      '`update_rounds` must be different rounds, found '
      f'{", ".join(map(str, config.update_rounds))}.'
    )
  if max(config.update_rounds, default=0) >= config.num_rounds:
    raise ValueError(
      f'`update_rounds` must be below `num_rounds` ({config.num_rounds}): they '
      f'count from 0; found {max(config.update_rounds)}.'
    )


def _check_estimates(config: Any) -> None:
  if config.estimate_repeats == 0:
    return
  if config.estimate_repeats == 1:
    raise ValueError(
      '`estimate_repeats` must be 0 for no estimates, or at least 2, found 1.'
    )
  if not config.update_rounds:
    raise ValueError(
      '`estimate_repeats` must be given with `update_rounds`, the rounds '
      f'that are estimated, found {config.estimate_repeats} without.'
    )
  if not config.measures_updates:
    raise ValueError(
      '`estimate_repeats` must be given for a private run only with '
      "`simulation_diagnostics`: it measures the clients' exact updates; "
      f'found {config.estimate_repeats} without.'
    )


def _check_audit(config: Any) -> None:
  if config.audit_canaries is None:
    if config.audit_seed is not None:
      raise ValueError(
        '`audit_seed` must be given with `audit_canaries`, found '
        f'{config.audit_seed} without.'
      )
    return
  if not config.is_private:
    raise ValueError(
      '`audit_canaries` must be given for dp_fed_avg only: an audit holds a '
      f'claim of privacy, which {config.algorithm} does not make; found '
      f'{config.audit_canaries}.'
    )
  if config.clipping == 'adaptive' or config.aggregation == 'distributed':
    raise ValueError(
      '`audit_canaries` must be given for a constant clipping norm and noise '
      f'at the server only, found `clipping` {config.clipping} and '
      f'`aggregation` {config.aggregation}.'
    )
  if config.sensitivity is None:
    raise ValueError(
      '`clipping_norm` must be given with `audit_canaries`: it is the unit '
      f'of what a canary moves; found {config.audit_canaries} without.'
    )
  if config.has_correlated_noise:
    raise ValueError(
      '`audit_canaries` must be given for `mechanism` gaussian only: the '
      'audit takes the noises of rounds to be independent; found '
      f'{config.mechanism}.'
    )
  if config.audit_canaries > MAX_AUDIT_CANARIES:
    raise ValueError(
      f'`audit_canaries` must be at most {MAX_AUDIT_CANARIES}, so that each '
      f'has a direction of its own, found {config.audit_canaries}.'
    )
  if config.simulation_diagnostics:
    raise ValueError(
      '`simulation_diagnostics` must not be given with `audit_canaries`, '
      'whose updates would be among those of the clients.'
    )
