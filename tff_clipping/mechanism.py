"""The record of a mechanism, which a private mean measures in each round.

Factories nest in any order, and from outside nobody can tell what a nest does.
So each private mean of `tff_clipping.aggregators` measures a record of its
mechanism, as a constant string under the name `mechanism`. A program compares
the record with its plan before it charges. A record is a promise: a factory
that measures one, or passes on the record of another factory, vouches for it.
An aggregator without a record is unchecked, and the ledger says so.
"""

import dataclasses
import json
from typing import Any

from tff_clipping import argument_checks

# The name of the measurement.
MECHANISM = 'mechanism'

# What `Mechanism.clipping_norm` is where the norm follows the updates.
ADAPTS = 'adapts'

_KINDS = ('gaussian', 'correlated', 'distributed', 'shares')
# Kinds whose noise comes in shares of the clients.
_IN_SHARES = ('distributed', 'shares')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mechanism:
  """A clip, noise on the sum of clipped values, and a public denominator.

  Attributes:
    kind: 'gaussian', independent noise in each round, added at the server;
      'correlated', noise that is correlated between rounds; 'distributed',
      discrete Gaussian noise in shares of the clients; 'shares', Gaussian noise
      in shares of the clients.
    clipping_norm: c; if each tensor has a norm of its own, the norm of all
      together; `ADAPTS` if c follows the updates.
    noise_multiplier: z, the standard deviation of the noise on the sum over c.
      If c adapts, z of the noisy sum and the noisy bits together. If noise is
      correlated, z of one draw. If noise comes in shares, z of the smallest
      cohort.
    clients_per_round: P, the denominator.
    strategy: The digest of the strategy of correlated noise; else `None`.
    min_clients: The smallest cohort, if noise comes in shares; else `None`.
    max_clients: The largest cohort, if noise comes in shares; else `None`.
    public: The names of the public measurements beside the record: constants,
      and figures computed from noised sums.

  Raises:
    TypeError: If an attribute is of the wrong kind.
    ValueError: If an attribute is out of range, or is missing for `kind`, or is
      given for a kind that has none.
  """

  kind: str
  clipping_norm: float | str
  noise_multiplier: float
  clients_per_round: float
  strategy: str | None = None
  min_clients: int | None = None
  max_clients: int | None = None
  public: tuple[str, ...] = ()

  def __post_init__(self):
    argument_checks.check_choice('kind', self.kind, _KINDS)
    checked: dict[str, Any] = {'public': _check_names(self.public)}
    if self.clipping_norm != ADAPTS:
      checked['clipping_norm'] = argument_checks.check_positive(
        'clipping_norm', self.clipping_norm
      )
    for name in ('noise_multiplier', 'clients_per_round'):
      checked[name] = argument_checks.check_positive(name, getattr(self, name))
    self._check_given('strategy', self.kind == 'correlated')
    for name in ('min_clients', 'max_clients'):
      self._check_given(name, self.kind in _IN_SHARES)
    if self.strategy is not None and not isinstance(self.strategy, str):
      raise TypeError(f'`strategy` must be a string, found {self.strategy!r}.')
    if self.min_clients is not None:
      checked['min_clients'] = argument_checks.check_integer(
        'min_clients', self.min_clients, at_least=0
      )
      checked['max_clients'] = argument_checks.check_integer(
        'max_clients', self.max_clients, at_least=max(self.min_clients, 1)
      )
    if self.kind == 'shares' and self.min_clients != self.max_clients:
      # What is released has the noise of those who came, and tells how many.
      raise ValueError(
        "`max_clients` must be `min_clients` for the kind 'shares', found "
        f'{self.max_clients} and {self.min_clients}.'
      )
    for name, value in checked.items():
      object.__setattr__(self, name, value)

  def _check_given(self, name: str, is_needed: bool) -> None:
    value = getattr(self, name)
    if (value is not None) != is_needed:
      rule = 'be given' if is_needed else 'be None'
      raise ValueError(
        f'`{name}` must {rule} for the kind {self.kind!r}, found {value!r}.'
      )

  def to_json(self) -> str:
    """Returns the record as one line of JSON, without what is `None`."""
    fields = dataclasses.asdict(self)
    return json.dumps({k: v for k, v in fields.items() if v is not None})

  @classmethod
  def from_json(cls, text: str | bytes) -> 'Mechanism':
    """Returns the record that `to_json` wrote.

    Args:
      text: The measurement; TFF returns strings as bytes.

    Raises:
      ValueError: If it is no record.
    """
    try:
      fields = json.loads(text)
      return cls(**fields)
    except (TypeError, ValueError) as e:
      raise ValueError(
        f'`{MECHANISM}` must be the JSON of a mechanism record, found '
        f'{text!r}: {e}'
      ) from e


def _check_names(names: Any) -> tuple[str, ...]:
  if not isinstance(names, (tuple, list)) or not all(
    isinstance(name, str) for name in names
  ):
    raise TypeError(f'`public` must be a tuple of names, found {names!r}.')
  return tuple(names)
