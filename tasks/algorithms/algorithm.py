"""What an algorithm is: the builder of all that one way to train needs.

A new one is a subclass in a file of its own, with a dataclass of its settings
if it has some, and is named in `builders`. It overrides what differs: what it
takes and refuses, its plan, its aggregator, or the whole learning process.

TensorFlow takes seconds to import: builders import it where they build.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
  import pathlib

  import tensorflow_federated as tff

  from tasks.algorithms.experiment import ExperimentConfig
  from tff_clipping import privacy
  from tff_clipping.privacy import audit


class Algorithm:
  """One way to train, with the settings of a run.

  Attributes:
    name: As in `--algorithm`. Several builders may have one name: settings
      choose between them.
    summary: What it is in a few words, for the help of `--algorithm`.
    is_private: Whether it takes a privacy plan, and adds noise by it.
    clips: 'nothing', 'updates' or 'models'.
    samplings: The ways to draw cohorts that it can be run with.
    sampling_reason: Why it cannot be run with others, for an error's end.
    settings: The settings of algorithms that it may take.
    refuses: Those of them that it does not take as it is chosen, and why not.
    config: The settings of the run.
  """

  name: ClassVar[str]
  summary: ClassVar[str]
  is_private: ClassVar[bool] = False
  clips: ClassVar[str] = 'nothing'
  samplings: ClassVar[tuple[str, ...]] = (
    'poisson',
    'fixed_size',
    'round_robin',
  )
  sampling_reason: ClassVar[str] = ''
  settings: ClassVar[frozenset[str]] = frozenset()
  refuses: Mapping[str, str] = {}

  def __init__(self, config: 'ExperimentConfig'):
    self.config = config

  @classmethod
  def is_chosen(cls, config: 'ExperimentConfig') -> bool:
    """Returns whether the settings ask for this one."""
    return config.algorithm == cls.name

  @property
  def title(self) -> str:
    """How an error calls it: by the setting that has chosen it."""
    return self.name

  @property
  def sensitivity(self) -> float | None:
    """What one client adds to a sum in norm, at most; `None` if unknown."""
    return self.config.clipping_norm

  @property
  def is_cut_to_clipping_norm(self) -> bool:
    """Whether an update is just cut to a norm of `clipping_norm`."""
    return True

  def check(self) -> None:
    """Raises for settings that it takes and that do not go together.

    Raises:
      TypeError: If a setting is of the wrong kind.
      ValueError: If it does not fit another.
    """
    if self.config.sampling not in self.samplings:
      raise ValueError(
        f'`sampling` must be one of {", ".join(self.samplings)} for '
        f'{self.title}, found {self.config.sampling!r}{self.sampling_reason}.'
      )

  def find_plan(
    self, num_clients: int, ledger: 'pathlib.Path | None' = None
  ) -> 'privacy.BasePlan | None':
    """Returns the privacy plan of a run; `None` for one without.

    Args:
      num_clients: The clients of its data, without canaries.
      ledger: The ledger of the run; its plan is that of a run that goes on.
    """
    del num_clients, ledger
    return None

  def create_aggregator(
    self,
    plan: 'privacy.BasePlan | None',
    model_fn: Callable[[], Any],
    user_aggregator: Callable[..., Any] | None = None,
  ) -> 'tff.aggregators.UnweightedAggregationFactory | None':
    """Returns what aggregates the updates; `None` is TFF's own mean.

    Args:
      plan: The plan of the run; `None` for one that is not private.
      model_fn: The model whose updates are aggregated.
      user_aggregator: The function that `--aggregator` names.
    """
    del plan, model_fn, user_aggregator
    return None

  def create_process(
    self,
    plan: 'privacy.BasePlan | None',
    model_fn: Callable[[], Any],
    *,
    canaries: 'audit.Canaries | None' = None,
    user_aggregator: Callable[..., Any] | None = None,
    **settings: Any,
  ) -> 'tff.learning.templates.LearningProcess':
    """Returns the learning process of a run.

    Args:
      plan: The plan of the run; `None` for one that is not private.
      model_fn: The model that clients train.
      canaries: Those among the clients of an audited run.
      user_aggregator: The function that `--aggregator` names.
      **settings: The clients' work and the server's step, as
        `learning.build_fed_avg` takes them.
    """
    from tff_clipping import aggregators, learning

    aggregator = self.create_aggregator(plan, model_fn, user_aggregator)
    if canaries is not None:
      aggregator = aggregators.add_canary_products(aggregator, canaries)
    return learning.build_fed_avg(
      model_fn, model_aggregator=aggregator, **settings
    )

  def describe(self) -> str:
    """Returns what the clipping norm and the noise of a plan are, in words."""
    return ''


def names_of(*settings: type) -> frozenset[str]:
  """Returns the names of the settings in dataclasses."""
  return frozenset(
    f.name for each in settings for f in dataclasses.fields(each)
  )
