"""Samplers: which clients take part in a round.

A sampler is a function of the round and the draw alone: `sample(round_num)`
depends on (seed, round) and not on earlier draws, so that a resumed run has the
cohorts of a run that never stopped. `sample(round_num, draw)` draws another,
independent cohort for the same round: for a round that was charged and whose
outcome is lost.

The privacy of a sampled run requires that an adversary does not know the
cohorts. Keep the seed as secret as the data.
"""

import abc
import functools
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from tff_clipping import argument_checks, id_forms
from tff_clipping.privacy import BasePlan
from tff_clipping.privacy.accounting import ranges


class ClientSampler(abc.ABC):
  """Draws the cohort of each round from a fixed population.

  Attributes:
    client_ids: The population.
    charged_as: The `sampler_parameters` of the plan that charges for these
      cohorts; `None` for a sampler that was not made for a plan.
    leaves_out: Whether clients leave a cohort after it was drawn, as canaries
      do.
  """

  charged_as: tuple | None = None
  leaves_out = False

  def __init__(self, client_ids: Sequence[str], *, seed: int):
    """Initializes the sampler.

    Args:
      client_ids: The population, all ids different, also to one who reads them
        (`id_forms.SeenIds`). Another order gives other cohorts.
      seed: The seed of the run's cohorts, not negative. If the cohorts are
        secret: a number that nobody else knows, such as
        `secrets.randbits(128)`.

    Raises:
      TypeError: If `client_ids` have no order, or `seed` is not an integer.
      ValueError: If the population is empty or has a client twice, perhaps in
        two spellings, or `seed` is negative.
    """
    _check_ids(client_ids)
    self.client_ids = tuple(client_ids)
    if not self.client_ids:
      raise ValueError('`client_ids` must not be empty.')
    seen = id_forms.SeenIds('client_ids')
    for client_id in self.client_ids:
      if isinstance(client_id, bytes):
        seen.add_new(client_id.decode(errors='surrogateescape'))
      else:
        seen.add_new(str(client_id))
    self._seed = argument_checks.check_integer('seed', seed, at_least=0)

  @property
  def digest(self) -> str | None:
    """A digest of all that decides the cohorts; `None` if it is not known.

    Under correlated noise and random allocation, a ledger uses it to refuse
    other cohorts in the midst of a run.
    """
    return None

  @property
  def seed_digest(self) -> str | None:
    """A digest of the seed; `None` if it is not known.

    With it, two runs with one seed are not added up as independent runs.
    """
    return None

  @abc.abstractmethod
  def sample(self, round_num: int, draw: int = 0) -> list[str]:
    """Returns the cohort of a round, in a fixed order.

    Args:
      round_num: The number of the round, from 1.
      draw: The number of the draw, from 0. The cohorts of two draws are
        independent.

    Raises:
      ValueError: If the scheme has only one draw, and `draw` is not 0.
    """


class _Seeded(ClientSampler):
  """A sampler whose cohorts the seed and the population decide.

  Groups of clients take turns, or one group has all. Of the group whose turn it
  is, a fixed number of clients take part, or each client by a coin.
  """

  # Whether a round has the same law whatever the cohorts of other rounds are.
  _is_independent = True
  _clients_per_round = 0

  def __init__(self, client_ids: Sequence[str], *, seed: int):
    """Initializes a `ClientSampler` with one group."""
    super().__init__(client_ids, seed=seed)
    self._groups = [np.arange(len(self.client_ids))]

  def sample(self, round_num: int, draw: int = 0) -> list[str]:
    """Returns the cohort of a round; see `ClientSampler`."""
    if draw and not self._is_independent:
      raise ValueError(
        f'`draw` must be 0 for {type(self).__name__}, whose cohorts depend on '
        f'each other, found {draw}.'
      )
    return [self.client_ids[i] for i in np.sort(self._indices(round_num, draw))]

  def _indices(self, round_num: int, draw: int) -> np.ndarray:
    """Returns the indices of a cohort, in any order."""
    group = self._groups[(round_num - 1) % len(self._groups)]
    rng = self._rng(round_num, draw)
    size = self._draw_size(rng, len(group))
    return group[rng.choice(len(group), size, replace=False)]

  def _draw_size(self, rng: np.random.Generator, group_size: int) -> int:
    """Returns how many of a group take part."""
    return self._clients_per_round

  def _rng(self, round_num: int, draw: int = 0) -> np.random.Generator:
    place = [round_num, draw] if draw else [round_num]
    return np.random.default_rng([self._seed, *place])

  @functools.cached_property
  def digest(self) -> str:
    """Also of what this version of NumPy makes of the seed."""
    order = self._rng(0).permutation(len(self.client_ids))
    decides = [
      type(self).__name__,
      self._seed,
      *map(str, self.client_ids),
      *order.tolist(),
    ]
    return _slow_digest(json.dumps(decides), 'cohorts')

  @functools.cached_property
  def seed_digest(self) -> str:
    """Of the seed alone."""
    return _slow_digest(str(self._seed), 'seed')


class PoissonSampler(_Seeded):
  """Each client takes part with a fixed probability, independently.

  The size of a cohort varies, and may be 0: a round of noise alone.
  The accounting of the Poisson-sampled Gaussian mechanism assumes this sampler.
  """

  def __init__(
    self, client_ids: Sequence[str], *, sampling_prob: float, seed: int
  ):
    """Initializes a `ClientSampler` with a probability in (0, 1]."""
    super().__init__(client_ids, seed=seed)
    prob = argument_checks.check_number('sampling_prob', sampling_prob)
    if not 0 < prob <= 1:
      raise ValueError(
        f'`sampling_prob` must be above 0 and at most 1, found {sampling_prob}.'
      )
    self._sampling_prob = prob

  def _draw_size(self, rng: np.random.Generator, group_size: int) -> int:
    # Of coins by the binomial law: a cohort costs what its clients cost, and
    # not a coin for each client of a large population.
    return rng.binomial(group_size, self._sampling_prob)


class RandomAllocationSampler(_Seeded):
  """Each client takes part in one round of each epoch, by `draw_round`.

  A device with a secret key of its own could draw its round. The size of a
  cohort varies, and may be 0: a round of noise alone.
  """

  _is_independent = False
  # The last epoch that was asked for, the clients in the order of their rounds,
  # and where in it each round begins. For each round of an epoch, to draw them
  # is the work of one cohort.
  _latest: tuple[int, np.ndarray, np.ndarray] | None = None

  def __init__(
    self, client_ids: Sequence[str], *, rounds_per_epoch: int, seed: int
  ):
    """Initializes a `ClientSampler` of strings, in any order."""
    super().__init__(client_ids, seed=seed)
    for client_id in self.client_ids:
      if not isinstance(client_id, str):
        raise TypeError(
          '`client_ids` must be strings where each client draws its round by '
          f'its id, found {client_id!r}.'
        )
    self._rounds_per_epoch = argument_checks.check_integer(
      'rounds_per_epoch',
      rounds_per_epoch,
      at_least=1,
      at_most=ranges.MAX_ROUNDS,
    )
    self._key = derive_key(self._seed)

  def _indices(self, round_num: int, draw: int) -> np.ndarray:
    epoch, place = divmod(round_num - 1, self._rounds_per_epoch)
    if self._latest is None or self._latest[0] != epoch:
      self._latest = epoch, *self._draw_epoch(epoch)
    _, order, starts = self._latest
    return order[starts[place] : starts[place + 1]]

  def _draw_epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the clients by their rounds, and where each round begins."""
    num_rounds = self._rounds_per_epoch
    places = [
      draw_round(each, key=self._key, epoch=epoch, rounds_per_epoch=num_rounds)
      for each in self.client_ids
    ]
    sizes = np.bincount(places, minlength=num_rounds)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return np.argsort(places, kind='stable'), starts


class FixedSizeSampler(_Seeded):
  """A cohort of a fixed size, drawn without replacement, new in each round.

  The paper's experiments use it (Sec. 4: 80 of 1920). Its privacy, under
  replace-one neighbours, differs from that of Poisson sampling.
  """

  def __init__(
    self, client_ids: Sequence[str], *, clients_per_round: int, seed: int
  ):
    """Initializes a `ClientSampler` with P clients a round, at least 1."""
    super().__init__(client_ids, seed=seed)
    self._clients_per_round = argument_checks.check_integer(
      'clients_per_round',
      clients_per_round,
      at_least=1,
      at_most=len(self.client_ids),
    )


class RoundRobinSampler(FixedSizeSampler):
  """Cohorts of a fixed size in which no client comes back too soon.

  The population is split at random, once, into `min_separation` groups of equal
  size (to one client); round t draws from group t modulo `min_separation`.
  """

  _is_independent = False

  def __init__(
    self,
    client_ids: Sequence[str],
    *,
    clients_per_round: int,
    min_separation: int,
    seed: int,
  ):
    """Initializes a `FixedSizeSampler` with a least separation in rounds.

    Raises:
      ValueError: If the population is too small for cohorts and separation.
    """
    super().__init__(client_ids, clients_per_round=clients_per_round, seed=seed)
    argument_checks.check_integer('min_separation', min_separation)
    largest = len(self.client_ids) // self._clients_per_round
    if not 1 <= min_separation <= largest:
      raise ValueError(
        f'`min_separation` must be from 1 to {largest} for cohorts of '
        f'{clients_per_round} of {len(self.client_ids)} clients, found '
        f'{min_separation}.'
      )
    order = self._rng(0).permutation(len(self.client_ids))
    self._groups = np.array_split(order, int(min_separation))


class GroupedPoissonSampler(RoundRobinSampler):
  """Groups that take turns, and a secret draw from the group of the round.

  Each client of the group takes part with probability `clients_per_round` *
  `min_separation` / population, independently: `clients_per_round` of them are
  expected.
  """

  def _draw_size(self, rng: np.random.Generator, group_size: int) -> int:
    num_turns = len(self._groups)
    prob = self._clients_per_round * num_turns / len(self.client_ids)
    return rng.binomial(group_size, prob)


def derive_key(seed: int) -> bytes:
  """Returns the secret key of a seed that nobody else knows, 32 bytes."""
  size = max(1, (seed.bit_length() + 7) // 8)
  return hashlib.blake2b(
    seed.to_bytes(size, 'little'), digest_size=32, person=b'tff_clip key'
  ).digest()


def draw_round(
  client_id: str, *, key: bytes, epoch: int, rounds_per_epoch: int
) -> int:
  """Returns the round of an epoch in which a client takes part.

  It is a keyed hash: without the key, the rounds of clients and of epochs look
  uniform and independent. No round is likelier than another by more than
  2^-128. A client needs nothing of the other clients.

  Args:
    client_id: The id, different for each client.
    key: A secret of at most 64 bytes; 32 random ones are enough.
    epoch: The number of the epoch, from 0.
    rounds_per_epoch: The rounds of an epoch, at least 1.

  Returns:
    A number from 0 to `rounds_per_epoch` - 1.
  """
  drawn = hashlib.blake2b(
    client_id.encode(),
    digest_size=16,
    key=key,
    salt=epoch.to_bytes(16, 'little'),
    person=b'tff_clip round',
  ).digest()
  return int.from_bytes(drawn, 'little') % rounds_per_epoch


def build_private_sampler(
  plan: BasePlan,
  client_ids: Sequence[str],
  *,
  seed: int,
) -> ClientSampler:
  """Returns the sampler whose cohorts a privacy plan charges for.

  Args:
    plan: The plan.
    client_ids: The population, as many clients as the plan is for.
    seed: The seed of the run's cohorts; see `ClientSampler`.

  Raises:
    TypeError: If `plan` is no plan, or `client_ids` have no order.
    ValueError: If the population is not of the plan's size.
  """
  if not isinstance(plan, BasePlan):
    raise TypeError(
      '`plan` must be a PrivacyPlan or another BasePlan, found '
      f'{type(plan).__name__}.'
    )
  _check_ids(client_ids)
  # The scheme tells which fields there are.
  parameters: Any = plan.sampler_parameters
  if len(client_ids) != parameters.num_clients:
    raise ValueError(
      f'`client_ids` must be the {parameters.num_clients} clients that the '
      f'plan is for, found {len(client_ids)}.'
    )
  sampler: ClientSampler
  if parameters.scheme == 'poisson':
    sampler = PoissonSampler(
      client_ids, sampling_prob=parameters.sampling_prob, seed=seed
    )
  elif parameters.scheme == 'random_allocation':
    rounds_per_epoch = round(1 / parameters.sampling_prob)
    sampler = RandomAllocationSampler(
      client_ids, rounds_per_epoch=rounds_per_epoch, seed=seed
    )
  elif parameters.scheme in ('fixed_size', 'none'):
    sampler = FixedSizeSampler(
      client_ids, clients_per_round=parameters.cohort_size, seed=seed
    )
  else:
    takes_turns = {
      'min_separation': RoundRobinSampler,
      'grouped_poisson': GroupedPoissonSampler,
    }
    sampler = takes_turns[parameters.scheme](
      client_ids,
      clients_per_round=parameters.cohort_size,
      min_separation=parameters.min_separation,
      seed=seed,
    )
  sampler.charged_as = parameters
  return sampler


def _slow_digest(text: str, what: str) -> str:
  """Returns a digest of which no seed of 64 bits is found by trying all."""
  salt = f'tff_clipping {what}'.encode()
  return hashlib.scrypt(text.encode(), salt=salt, n=2**14, r=8, p=1).hex()


def _check_ids(client_ids: Any) -> None:
  """Raises unless they come in an order that another process has too."""
  if isinstance(client_ids, (str, bytes, set, frozenset)) or not (
    hasattr(client_ids, '__len__') and hasattr(client_ids, '__iter__')
  ):
    raise TypeError(
      '`client_ids` must be a list of ids, in the same order in each process, '
      f'found {type(client_ids).__name__}.'
    )
  for client_id in client_ids:
    if not isinstance(client_id, (str, bytes, int, np.integer)):
      raise TypeError(
        '`client_ids` must be the names of clients, not their data, found '
        f'{type(client_id).__name__}: `client_value` returns the data of an id.'
      )
