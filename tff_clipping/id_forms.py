"""Finds two ids that may name one client.

A guarantee protects a client, and a client is known by its id. A person whose
id is written in two ways would be two clients.
"""

import decimal
import re
import unicodedata

# As people and NumPy write numbers: 1e5 may be a hexadecimal id.
_NUMBER = re.compile(r'[+-]?(\d+\.?\d*|\.\d+)([eE][+-]\d{1,3})?', re.ASCII)
# What shows nothing: control characters and format characters.
_INVISIBLE = ('Cc', 'Cf')


def normal_form(client_id: str) -> str:
  """Returns an id without differences that nobody sees.

  Its characters are in one normal form (NFKC), without invisible ones, and its
  blanks are single, with none at the ends.
  """
  if client_id.isascii() and client_id.isprintable() and ' ' not in client_id:
    return client_id
  text = unicodedata.normalize('NFKC', client_id)
  text = ''.join(
    character
    for character in text
    if character.isspace() or unicodedata.category(character) not in _INVISIBLE
  )
  return ' '.join(text.split())


def number(client_id: str) -> decimal.Decimal | None:
  """Returns the number that an id spells, or `None`: 1 for '01' and '1.0'."""
  text = normal_form(client_id)
  return decimal.Decimal(text) if _NUMBER.fullmatch(text) else None


class SeenIds:
  """Ids of clients. Refuses another spelling of an id that it has."""

  def __init__(self, name: str):
    """Initializes it without ids; errors call the ids those of `name`."""
    self._name = name
    self._seen: dict[str | decimal.Decimal, str] = {}

  def add(self, client_id: str) -> None:
    """Adds an id, perhaps again.

    Raises:
      ValueError: If it looks like another one, or is the same number.
    """
    for form in (normal_form(client_id), number(client_id)):
      if form is None:
        continue
      other = self._seen.setdefault(form, client_id)
      if other != client_id:
        raise ValueError(
          f'`{self._name}` must write an id in one way, found {other!r} and '
          f'{client_id!r}. If they are of two clients, put a letter before '
          'each.'
        )

  def add_new(self, client_id: str) -> None:
    """Adds an id that must not be there yet; raises ValueError as `add`."""
    if self._seen.get(normal_form(client_id)) == client_id:
      raise ValueError(
        f'`{self._name}` must be all different, found {client_id!r} twice.'
      )
    self.add(client_id)
