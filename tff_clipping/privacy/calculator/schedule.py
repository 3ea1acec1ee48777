"""How often devices come, in days and participations, as people say it."""

import dataclasses

from tff_clipping import argument_checks
from tff_clipping.privacy.accounting import ranges


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
  """Rounds by the day, and how often one device may take part.

  Attributes:
    rounds_per_day: Rounds a day, or None.
    num_days: Days, or None. Needs `rounds_per_day`.
    max_per_day: The most participations of a device in any 24 hours, or None.
      Needs `rounds_per_day`.
    max_participations: The most participations of a device in the whole run, or
      None. Needs a number of rounds, and excludes `max_per_day`.

  Raises:
    TypeError: If an attribute is not an integer.
    ValueError: If it is below 1, or they do not go together.
  """

  rounds_per_day: int | None = None
  num_days: int | None = None
  max_per_day: int | None = None
  max_participations: int | None = None

  def __post_init__(self):
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if value is not None:
        argument_checks.check_integer(
          field.name, value, at_least=1, at_most=ranges.MAX_ROUNDS
        )
    if self.rounds_per_day is None:
      for name in ('num_days', 'max_per_day'):
        if getattr(self, name) is not None:
          raise ValueError(
            f'`rounds_per_day` must be given with `{name}`, found none.'
          )
    if self.max_per_day is not None and self.max_participations is not None:
      raise ValueError(
        '`max_per_day` must not be given with `max_participations`: each says '
        f'how often a device comes, found {self.max_per_day} and '
        f'{self.max_participations}.'
      )

  @property
  def limits_devices(self) -> bool:
    """Whether it says how often a device may come."""
    return self.max_per_day is not None or self.max_participations is not None

  def find_num_rounds(self, num_rounds: int | None) -> int | None:
    """Returns the number of rounds.

    Args:
      num_rounds: The rounds that are given, or None.

    Raises:
      ValueError: If both they and days are given.
    """
    if self.num_days is None or self.rounds_per_day is None:
      return num_rounds
    if num_rounds is not None:
      raise ValueError(
        f'`num_rounds` must not be given with `num_days`, found {num_rounds}.'
      )
    return self.num_days * self.rounds_per_day

  def find_separation(self, num_rounds: int | None) -> int | None:
    """Returns the rounds between participations that keep to the limit.

    Args:
      num_rounds: The rounds of the run, or None where they are solved for.

    Returns:
      The least b such that a device that comes at most once in any b rounds
      keeps to the limit; None without a limit.

    Raises:
      ValueError: If `max_participations` is given without rounds.
    """
    if self.max_per_day is not None and self.rounds_per_day is not None:
      return -(-self.rounds_per_day // self.max_per_day)
    if self.max_participations is None:
      return None
    if num_rounds is None:
      raise ValueError(
        '`num_rounds` must be given with `max_participations`, found none: '
        'participations are spread over them.'
      )
    return -(-num_rounds // self.max_participations)

  def describe(self, num_rounds: int, min_separation: int | None) -> str:
    """Returns what the limits mean for a run, in sentences; '' without any.

    Args:
      num_rounds: Its rounds.
      min_separation: The rounds from one participation to the next, or None.
    """
    sentences = []
    if self.rounds_per_day is not None:
      days = num_rounds / self.rounds_per_day
      sentences.append(
        f'{num_rounds} rounds at {self.rounds_per_day} a day take {days:.4g} '
        f'{"day" if days == 1 else "days"}.'
      )
    if self.limits_devices and min_separation is not None:
      most = -(-num_rounds // min_separation)
      times = 'once' if most == 1 else f'{most} times'
      sentences.append(
        'The server must turn away a device that took part fewer than '
        f'{min_separation} rounds ago: then it comes at most {times} in all.'
      )
    if self.max_per_day is not None:
      sentences.append(
        'A limit by calendar days would not do: the last round of a day and '
        'the first of the next are neighbours.'
      )
    return ' '.join(sentences)
