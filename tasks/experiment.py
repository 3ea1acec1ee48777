"""What a training run is asked to do, checked before anything is built."""

import dataclasses
import math
import numbers
from collections.abc import Mapping
from typing import Any

from tff_clipping.privacy import arguments

ALGORITHMS = ('fed_avg', 'ce_fed_avg', 'dp_fed_avg', 'model_clipping_fed_avg')
PRIVATE_SAMPLINGS = ('poisson', 'fixed_size', 'paper')
SAMPLINGS = ('poisson', 'fixed_size', 'shuffled_epochs', 'round_robin')
ACCOUNTANTS = ('rdp', 'pld')
SERVER_OPTIMIZERS = ('sgd', 'momentum', 'adam', 'yogi', 'adagrad')


@dataclasses.dataclass(frozen=True)
class ExperimentConfig:
  """The settings of a run; each is a flag of `tasks.train`.

  Attributes:
    task: The name of the data set.
    partition: The name of the split over clients.
    model: The name of the model.
    algorithm: 'fed_avg' (Alg. 1), 'ce_fed_avg' (clips updates), 'dp_fed_avg'
      (clips updates and adds noise) or 'model_clipping_fed_avg' (clips models).
    num_clients: N; `None` for as many as a natural partition has.
    examples_per_client: The number of examples of each client; `None` for as
      many as there are without overlap.
    dirichlet_alpha: The concentration of the 'dirichlet' partition.
    shards_per_client: The number of shards of the 'shards' partition.
    clients_per_round: P: the cohort, or its expected size under Poisson
      sampling.
    num_rounds: T.
    local_steps: Q.
    batch_size: The number of examples in each local step.
    client_learning_rate: eta_l.
    server_learning_rate: eta_g.
    server_optimizer: What applies the aggregate; 'sgd' is the paper's step.
    clipping_norm: c; `None` for 'fed_avg'. A threshold on the norm of updates,
      or of whole models for 'model_clipping_fed_avg'.
    sampling: How cohorts are drawn.
    min_separation: The rounds between two participations, for 'round_robin'.
    target_epsilon: The budget; sets the noise. `None` if the noise is given.
    target_delta: The delta of the budget.
    noise_multiplier: sigma / c on the sum; `None` if the budget is given.
    accountant: 'rdp' or 'pld'.
    seed: The seed of the split and of the clients' shuffling.
    model_seed: The seed of the initial model.
    sampling_seed: The seed of the cohorts. `None` is 0, and in a private run
      fresh entropy, since sampling hides nobody from who knows its seed; the
      run keeps it (`RunFolder.with_sampling_seed`).
    noise_seed: Makes the noise repeatable, which is for tests alone; `None` for
      fresh entropy.
    rounds_per_evaluation: Evaluate each so many rounds.
    test_examples: Evaluate on so many examples of the test set, evenly spaced
      in it; `None` for all.
    rounds_per_checkpoint: Save each so many rounds.
    update_rounds: The rounds t, from 0, whose updates are written in full.
    estimate_repeats: The number of repeated local runs in these rounds, from
      which the norms of the clients' expected updates are estimated; 0 for
      none.
    simulation_diagnostics: Whether a private run measures its clients' exact
      updates as well. They are no part of the guarantee.
  """

  task: str
  partition: str
  model: str
  algorithm: str
  clients_per_round: int
  num_rounds: int
  local_steps: int
  batch_size: int
  client_learning_rate: float
  num_clients: int | None = None
  examples_per_client: int | None = None
  dirichlet_alpha: float = 0.5
  shards_per_client: int = 2
  server_learning_rate: float = 1.0
  server_optimizer: str = 'sgd'
  clipping_norm: float | None = None
  sampling: str = 'fixed_size'
  min_separation: int = 1
  target_epsilon: float | None = None
  target_delta: float | None = None
  noise_multiplier: float | None = None
  accountant: str = 'rdp'
  seed: int = 0
  model_seed: int = 0
  sampling_seed: int | None = None
  noise_seed: int | None = None
  rounds_per_evaluation: int = 1
  test_examples: int | None = None
  rounds_per_checkpoint: int = 10
  update_rounds: tuple[int, ...] = ()
  estimate_repeats: int = 0
  simulation_diagnostics: bool = False

  def __post_init__(self):
    for name in (
      'clients_per_round',
      'num_rounds',
      'local_steps',
      'batch_size',
      'shards_per_client',
      'min_separation',
      'rounds_per_evaluation',
      'rounds_per_checkpoint',
    ):
      _check_integer(name, getattr(self, name), at_least=1)
    for name in ('num_clients', 'examples_per_client', 'test_examples'):
      if getattr(self, name) is not None:
        _check_integer(name, getattr(self, name), at_least=1)
    if self.sampling_seed is None and not self.is_private:
      object.__setattr__(self, 'sampling_seed', 0)
    for name in ('seed', 'model_seed'):
      _check_integer(name, getattr(self, name), at_least=0)
    for name in ('sampling_seed', 'noise_seed'):
      if getattr(self, name) is not None:
        _check_integer(name, getattr(self, name), at_least=0)
    for t in self.update_rounds:
      _check_integer('update_rounds', t, at_least=0)
    for name in (
      'client_learning_rate',
      'server_learning_rate',
      'dirichlet_alpha',
    ):
      _check_positive(name, getattr(self, name))
    _check_choice('algorithm', self.algorithm, ALGORITHMS)
    _check_choice('server_optimizer', self.server_optimizer, SERVER_OPTIMIZERS)
    _check_choice('accountant', self.accountant, ACCOUNTANTS)
    if (
      self.num_clients is not None and self.clients_per_round > self.num_clients
    ):
      raise ValueError(
        f'`clients_per_round` must be at most the {self.num_clients} clients '
        f'that there are, found {self.clients_per_round}.'
      )
    self._check_clipping()
    self._check_privacy()
    self._check_estimates()

  @property
  def is_private(self) -> bool:
    """Whether the run has a privacy guarantee."""
    return self.algorithm == 'dp_fed_avg'

  @property
  def measures_updates(self) -> bool:
    """Whether the clients' exact updates are measured."""
    return not self.is_private or self.simulation_diagnostics

  @property
  def caveats(self) -> tuple[str, ...]:
    """Why a private run of these settings does not have its plan's guarantee.

    In main clauses, for `PrivacyPlan.describe`. Ask before
    `RunFolder.with_sampling_seed` has drawn a seed.
    """
    if not self.is_private:
      return ()
    reasons = {
      'the seed of the noise was given, and whoever knows it can subtract the '
      'noise': self.noise_seed is not None,
      'the seed of the cohorts was given, and sampling hides no client from '
      'whoever knows it': self.sampling_seed is not None,
      "the run's files hold exact figures of the clients": (
        self.simulation_diagnostics
      ),
    }
    return tuple(reason for reason, applies in reasons.items() if applies)

  def to_json(self) -> dict[str, Any]:
    """Returns the settings as they are saved in config.json."""
    settings = dataclasses.asdict(self)
    settings['update_rounds'] = list(self.update_rounds)
    return settings

  def differences(self, saved: Mapping[str, Any]) -> list[str]:
    """Returns what tells these settings from saved ones, a phrase each."""
    mine = self.to_json()
    if self.sampling_seed is None:
      # Any seed was drawn by the run itself.
      mine['sampling_seed'] = saved.get('sampling_seed')
    return [
      f'{name} was {saved.get(name)!r} and is {mine.get(name)!r}'
      for name in {**mine, **saved}
      if saved.get(name) != mine.get(name)
    ]

  def _check_clipping(self) -> None:
    if self.algorithm == 'fed_avg':
      if self.clipping_norm is not None:
        raise ValueError(
          '`clipping_norm` must not be given for fed_avg, which does not clip, '
          f'found {self.clipping_norm}; ce_fed_avg does.'
        )
      return
    if self.clipping_norm is None:
      raise ValueError(
        f'`clipping_norm` must be given for {self.algorithm}, or taken from a '
        'run of fed_avg by `clipping_norm_from`.'
      )
    _check_positive('clipping_norm', self.clipping_norm)

  def _check_privacy(self) -> None:
    budget = ('target_epsilon', 'target_delta', 'noise_multiplier')
    if not self.is_private:
      for name in budget:
        if getattr(self, name) is not None:
          raise ValueError(
            f'`{name}` must not be given for {self.algorithm}, which adds no '
            f'noise, found {getattr(self, name)}; dp_fed_avg does.'
          )
      _check_choice('sampling', self.sampling, SAMPLINGS)
      return
    _check_choice('sampling', self.sampling, PRIVATE_SAMPLINGS)
    if self.target_delta is None:
      raise ValueError('`target_delta` must be given for dp_fed_avg.')
    arguments.check_target_delta(self.target_delta)
    if (self.target_epsilon is None) == (self.noise_multiplier is None):
      raise ValueError(
        'dp_fed_avg takes one of `target_epsilon` and `noise_multiplier`, '
        'found '
        f'{self.target_epsilon} and {self.noise_multiplier}.'
      )
    if self.target_epsilon is not None:
      arguments.check_target_epsilon(self.target_epsilon)
    else:
      arguments.check_noise_multiplier(self.noise_multiplier)

  def _check_estimates(self) -> None:
    _check_integer('estimate_repeats', self.estimate_repeats, at_least=0)
    if self.estimate_repeats == 0:
      return
    if self.estimate_repeats == 1:
      raise ValueError(
        '`estimate_repeats` must be 0 for no estimates, or at least 2, found 1.'
      )
    if not self.update_rounds:
      raise ValueError(
        '`estimate_repeats` must be given with `update_rounds`, the rounds '
        f'that are estimated, found {self.estimate_repeats} without.'
      )
    if not self.measures_updates:
      raise ValueError(
        '`estimate_repeats` must be given for a private run only with '
        "`simulation_diagnostics`: it measures the clients' exact updates; "
        f'found {self.estimate_repeats} without.'
      )


def _check_integer(name: str, value, *, at_least: int) -> None:
  if isinstance(value, bool) or not isinstance(value, numbers.Integral):
    raise TypeError(f'`{name}` must be an integer, found {value!r}.')
  if value < at_least:
    raise ValueError(f'`{name}` must be at least {at_least}, found {value}.')


def _check_positive(name: str, value) -> None:
  if isinstance(value, bool) or not isinstance(value, numbers.Real):
    raise TypeError(f'`{name}` must be a number, found {value!r}.')
  if not (value > 0 and math.isfinite(value)):
    raise ValueError(f'`{name}` must be positive and finite, found {value}.')


def _check_choice(name: str, value, choices: tuple[str, ...]) -> None:
  if value not in choices:
    raise ValueError(
      f'`{name}` must be one of {", ".join(choices)}, found {value!r}.'
    )
