"""How the norm of an update is bounded, and the mean of bounded updates."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from tasks.settings.setting_fields import one_of, positive, setting
from tff_clipping import argument_checks

if TYPE_CHECKING:
  import tensorflow_federated as tff

  from tasks.algorithms.experiment import ExperimentConfig

# As `adaptive_dp_mean_factory` has it by default.
_NORM_LEARNING_RATE = 0.2


class Bound:
  """A constant bound of the norm; a subclass is one of `--clipping`.

  Attributes:
    refuses: The settings of `ClippingSettings` that it does not take, and why
      not.
    is_constant: Whether the bound is the same in all rounds.
    config: The settings of the run.
  """

  refuses: ClassVar[Mapping[str, str]] = {
    'target_quantile': 'whose `clipping` is not adaptive'
  }
  is_constant: ClassVar[bool] = True

  def __init__(self, config: 'ExperimentConfig'):
    self.config = config

  def check(self) -> None:
    """Raises unless the settings that it needs are given."""
    if self.config.clipping_norm is None:
      price = ': an exact figure, with which nothing is guaranteed'
      raise ValueError(
        f'`clipping_norm` must be given for {self.config.algorithm}, or taken '
        'from a run of fed_avg by `clipping_norm_from`'
        f'{price if self.config.is_private else ""}.'
      )

  def describe(self) -> str:
    """Returns what the clipping norm of a plan is, in words."""
    return f'The clipping norm is {self.config.clipping_norm}.'

  def create_mean(
    self, model_fn: Callable[[], Any]
  ) -> 'tff.aggregators.UnweightedAggregationFactory':
    """Returns the mean of bounded updates, without noise."""
    import tensorflow_federated as tff

    from tff_clipping import aggregators

    norm, sensitivity, clip = self._clip(model_fn)
    # A secure sum is to hide who was clipped.
    counts = (
      tff.aggregators.SecureSumFactory(1, 0)
      if self.config.aggregation == 'secure'
      else tff.aggregators.SumFactory()
    )
    return clip(
      norm,
      aggregators.realized_mean_factory(self._sum(sensitivity)),
      count_sum_factory=counts,
    )

  def create_private_mean(
    self, model_fn: Callable[[], Any], **noise: Any
  ) -> 'tff.aggregators.UnweightedAggregationFactory':
    """Returns the mean of bounded updates with each round's own noise.

    Args:
      model_fn: The model whose updates are aggregated.
      **noise: `noise_multiplier`, `clients_per_round` and `noise_key`, as
        `dp_mean_factory` takes them.
    """
    from tff_clipping import aggregators

    norm, sensitivity, _ = self._clip(model_fn)
    return aggregators.dp_mean_factory(
      clipping_norm=norm, sum_factory=self._sum(sensitivity), **noise
    )

  def _clip(
    self, model_fn: Callable[[], Any]
  ) -> tuple[Any, float, Callable[..., Any]]:
    """Returns the norm or norms, the bound of all, and what clips to them."""
    raise NotImplementedError

  def _sum(self, sensitivity: float) -> Any:
    """Returns what adds up bounded updates; `None` is a plain sum."""
    from tff_clipping import aggregators

    if self.config.aggregation == 'plain':
      return None
    return aggregators.secure_sum_factory(sensitivity)


class Fixed(Bound):
  """An update is cut to the norm c."""

  def _clip(self, model_fn):
    from tff_clipping import aggregators

    norm = self.config.clipping_norm
    return norm, norm, aggregators.difference_clipping_factory


class Adaptive(Bound):
  """An update is cut to a quantile of the norms, which starts at c."""

  refuses = {}
  is_constant = False

  @property
  def quantile(self) -> float:
    """The quantile of the norms that c follows."""
    given = self.config.target_quantile
    return 0.5 if given is None else given

  def check(self) -> None:
    if self.config.clipping_norm is None:
      raise ValueError(
        '`clipping_norm` must be given for `clipping` adaptive, whose c begins '
        'at it: a rough guess will do.'
      )
    if self.config.target_quantile is not None:
      argument_checks.check_probability(
        'target_quantile', self.config.target_quantile
      )
    if self.config.aggregation == 'secure':
      raise ValueError(
        '`clipping` must not be adaptive for `aggregation` secure, whose '
        'bounds are those of a constant c.'
      )

  def describe(self) -> str:
    return (
      'The clipping norm is adaptive. The noise multiplier is that of the sum '
      'and of the bits that set the norm together: the sum alone has more.'
    )

  def create_mean(self, model_fn):
    import tensorflow_federated as tff

    from tff_clipping import aggregators

    norm = tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
      initial_estimate=self.config.clipping_norm,
      target_quantile=self.quantile,
      learning_rate=_NORM_LEARNING_RATE,
    )
    return aggregators.clipped_mean_factory(clipping_norm=norm)

  def create_private_mean(self, model_fn, **noise):
    from tff_clipping import aggregators

    return aggregators.adaptive_dp_mean_factory(
      initial_clipping_norm=self.config.clipping_norm,
      target_quantile=self.quantile,
      **noise,
    )


class PerLayer(Bound):
  """Each of the K tensors of an update is cut to c / sqrt(K)."""

  def describe(self) -> str:
    return (
      'The clipping norm of all tensors together is '
      f'{self.config.clipping_norm}; all have the same share of its square.'
    )

  def _clip(self, model_fn):
    import tensorflow_federated as tff

    from tff_clipping import aggregators

    weights_type = tff.learning.models.weights_type_from_model(model_fn)
    count = len(weights_type.trainable)
    norms = [self.config.clipping_norm / math.sqrt(count)] * count
    return (
      norms,
      aggregators.combined_clipping_norm(norms),
      aggregators.per_layer_clipping_factory,
    )


BOUNDS: dict[str, type[Bound]] = {
  'fixed': Fixed,
  'adaptive': Adaptive,
  'per_layer': PerLayer,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClippingSettings:
  """The settings on how updates are bounded and added up."""

  clipping: str = setting(
    'fixed (to c), adaptive (from c to a quantile of the norms) or per_layer '
    '(each of K tensors to c / sqrt(K)).',
    'fixed',
    check=one_of(*BOUNDS),
  )
  clipping_norm: float | None = setting(
    'c, the threshold on the norms of updates, or of whole models for '
    'model_clipping_fed_avg.',
    None,
    check=positive,
  )
  target_quantile: float | None = setting(
    'For --clipping=adaptive: the share of updates that are not to be clipped; '
    'else 0.5.',
    None,
  )
  aggregation: str = setting(
    'plain, secure (secure sums; noise at the server) or, for dp_fed_avg, '
    'distributed (noise at the clients, in integers).',
    'plain',
    check=one_of('plain', 'secure', 'distributed'),
  )
