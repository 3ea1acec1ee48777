"""The door `--aggregator`: a user's factory in place of an algorithm's."""

import dataclasses
from typing import Any

from tasks.algorithms import clipping
from tasks.algorithms.algorithm import Algorithm, names_of
from tasks.algorithms.fed_avg import ClippedFedAvg, FedAvg
from tasks.algorithms.gaussian import GaussianFedAvg
from tasks.settings import named_functions
from tasks.settings.setting_fields import setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class AggregatorSettings:
  """The setting that opens the door."""

  aggregator: str | None = setting(
    "Your own in place of the algorithm's: module:function or "
    'FILE.py:function, which returns an unweighted aggregation factory of TFF, '
    'and of dp_fed_avg takes the plan; see docs/your_own.md.',
    None,
    check=named_functions.check_form,
  )


class _UnknownBound(clipping.Bound):
  """What a user's factory does to the norms, perhaps with c."""

  def check(self) -> None:
    pass


class _UserAggregator(Algorithm):
  """An algorithm but for its factory.

  Whether a private one adds noise is checked here, and whether its type says
  that its noise is that of the plan. Of others, the program that runs it checks
  whether it clips, and how much noise it measures; of one that measures
  nothing, no check tells.
  """

  is_cut_to_clipping_norm = False
  refuses = {
    **dict.fromkeys(
      names_of(clipping.ClippingSettings) - {'clipping_norm'},
      'which takes its place',
    ),
    'mechanism': 'whose plan charges noise that is independent between rounds',
  }

  @classmethod
  def is_chosen(cls, config) -> bool:
    return config.aggregator is not None and super().is_chosen(config)

  @property
  def title(self) -> str:
    return f'{self.name} with `aggregator`'

  @property
  def bound(self) -> clipping.Bound:
    return _UnknownBound(self.config)

  def create_aggregator(self, plan, model_fn, user_aggregator=None):
    """Returns what a user's function returns, if it can be used.

    Args:
      plan: The plan of the run; `None` for one that is not private.
      model_fn: The model whose updates it aggregates.
      user_aggregator: Returns the factory. It takes, by name, `clipping_norm`
        where the run has one, and `plan` where it is private.

    Raises:
      TypeError: If the function takes something else, or returns something
        else.
      ValueError: If it fails, or in a private run adds no noise, or follows the
        norms of updates that no noise covers, or has noise that is correlated
        between rounds.
    """
    import tensorflow_federated as tff

    name = named_functions.name_of(user_aggregator)
    factory = self._call(plan, user_aggregator)
    if not isinstance(factory, tff.aggregators.UnweightedAggregationFactory):
      raise TypeError(
        '`aggregator` must be a function that returns a '
        '`tff.aggregators.UnweightedAggregationFactory`, found that '
        f'{name} returns {type(factory).__name__}.'
      )
    weights_type = tff.learning.models.weights_type_from_model(model_fn)
    process = named_functions.call(
      'aggregator', factory.create, '(value_type)', weights_type.trainable
    )
    if plan is not None:
      self._check_noise(process.state_type, name)
    return factory

  def checks_aggregator(self, plan, user_aggregator=None):
    """Returns whether the type of a user's factory says that it is private.

    So it is for `dp_mean_factory` with the plan's noise, and for
    `transformed_factory` around it.

    Args:
      plan: The plan of the run; `None` for one that is not private.
      user_aggregator: Returns the factory, as for `create_aggregator`.
    """
    if plan is None:
      return True
    from tff_clipping.aggregators.parts import private_mean

    found = private_mean.find_noise_multiplier(
      self._call(plan, user_aggregator)
    )
    return found is not None and found >= plan.noise_multiplier

  def _call(self, plan, user_aggregator) -> Any:
    """Returns what a user's function returns."""
    given = dict(clipping_norm=self.config.clipping_norm, plan=plan)
    arguments = {k: v for k, v in given.items() if v is not None}
    name = named_functions.name_of(user_aggregator)
    if 'clipping_norm' not in arguments and named_functions.requires(
      user_aggregator, 'clipping_norm'
    ):
      raise ValueError(
        f'`clipping_norm` must be given for {name}, which takes it, with '
        '`algorithm` ce_fed_avg or dp_fed_avg, found none for '
        f'{self.config.algorithm}.'
      )
    return named_functions.call(
      'aggregator', user_aggregator, f'({", ".join(arguments)})', **arguments
    )

  def _check_noise(self, state_type: Any, name: str) -> None:
    from tff_clipping.aggregators.parts import (
      composition_rules,
      inspect_process,
    )

    if not inspect_process.adds_noise(state_type):
      raise ValueError(
        f'`aggregator` must add noise for {self.name}, found no factory of '
        f'ours or of TFF in that of {name} that does: it would release what '
        "the plan's epsilon does not cover. A factory that adds noise itself "
        'has a state with a field `privacy_noise`, empty where the noise is '
        'fresh.'
      )
    composition_rules.check_norms_are_charged('aggregator', state_type)
    if inspect_process.correlates_noise(state_type):
      raise ValueError(
        '`aggregator` must have noise that is independent between rounds, as '
        f'`mechanism` gaussian has, found that of {name}.'
      )

  def describe(self) -> str:
    return (
      f'The plan holds only if {self.config.aggregator} clips each update and '
      "adds the plan's noise."
    )


class UserFedAvg(_UserAggregator, FedAvg):
  """FedAvg with a user's factory."""

  settings = FedAvg.settings | names_of(AggregatorSettings)


class UserClippedFedAvg(_UserAggregator, ClippedFedAvg):
  """CE-FedAvg with a user's factory."""

  settings = ClippedFedAvg.settings | names_of(AggregatorSettings)


class UserGaussianFedAvg(_UserAggregator, GaussianFedAvg):
  """DP-FedAvg with a user's factory."""

  settings = GaussianFedAvg.settings | names_of(AggregatorSettings)
