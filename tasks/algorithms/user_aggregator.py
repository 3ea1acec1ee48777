"""The door `--aggregator`: a user's factory in place of an algorithm's."""

import dataclasses
from typing import Any

from tasks import named_functions
from tasks.algorithms import clipping
from tasks.algorithms.algorithm import Algorithm, names_of
from tasks.algorithms.fed_avg import ClippedFedAvg, FedAvg
from tasks.algorithms.gaussian import GaussianFedAvg
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

  Of a private one, the program that runs it compares the record of its
  mechanism with the plan. Of one without a record nobody has checked what it
  does, and the run says so.
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
      ValueError: If it fails.
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
    named_functions.call(
      'aggregator', factory.create, '(value_type)', weights_type.trainable
    )
    return factory

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
