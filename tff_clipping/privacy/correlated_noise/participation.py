"""In which rounds one client may take part."""

import dataclasses

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import ranges


@dataclasses.dataclass(frozen=True, kw_only=True)
class Participation:
  """The rounds that one client may take part in; nothing is drawn in secret.

  Attributes:
    min_separation: b. From one participation of a client to its next there are
      at least so many rounds; 1 allows every round.
    max_participations: k. None means as many as `min_separation` allows.

  Raises:
    TypeError: If an attribute is of the wrong kind.
    ValueError: If an attribute is below 1.
  """

  min_separation: int
  max_participations: int | None = None

  def __post_init__(self):
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if value is not None or field.name == 'min_separation':
        value = argument_checks.check_integer(
          field.name, value, at_least=1, at_most=ranges.MAX_ROUNDS
        )
        object.__setattr__(self, field.name, value)

  def count(self, num_rounds: int) -> int:
    """Returns the most participations of a client in so many rounds.

    Args:
      num_rounds: The rounds from the first, at least 0.
    """
    limits = [-(-num_rounds // self.min_separation)]
    if self.max_participations is not None:
      limits.append(self.max_participations)
    return min(limits)
