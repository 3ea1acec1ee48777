"""The ids of clients in a user's own data: present, and one for each person.

Strings that look the same are one id: blanks at their ends do not count, and
characters have one normal form of Unicode.
"""

from typing import Any

import numpy as np
import pandas as pd

from tasks.checks import check as check_rule
from tasks.data.task import warn
from tff_clipping import id_forms

# What pandas, NumPy, R and JSON write for a missing value. 'NA' may be an id,
# and is warned of.
_MISSING = frozenset(
  ('nan', 'NaN', 'None', '<NA>', 'NaT', 'null', 'NULL', '#N/A', 'N/A', 'n/a')
)


def check(name: str, client: Any) -> np.ndarray:
  """Returns ids, integers or strings, in the form that tells them apart.

  Raises:
    ValueError: If `client` is not [n] whole numbers or strings, also of bytes
      in UTF-8, or an id is missing or negative; the message calls them `name`.
  """
  client = np.asarray(client)
  if client.dtype == object and client.ndim == 1:  # As pandas has strings.
    _refuse(name, 'missing', client, pd.isna(client))
    if all(isinstance(c, str) for c in client):
      client = client.astype(str)
  are_ids = client.ndim == 1 and client.dtype.kind in 'iuUS'
  found = f'{client.dtype}{list(client.shape)}'
  check_rule(name, are_ids, 'must be integers or strings [examples]', found)
  if client.dtype.kind in 'iu':
    _refuse(name, 'negative', client, client < 0)
    return client
  texts, places = np.unique(client, return_inverse=True)
  if client.dtype.kind == 'S':
    try:
      texts = np.char.decode(texts, 'utf-8')
    except UnicodeDecodeError as e:
      raise ValueError(
        f'`{name}` must be text in UTF-8, found {e.object!r}.'
      ) from e
  forms = np.array([id_forms.normal_form(text) for text in texts.tolist()])
  numbers = [id_forms.number(form) for form in forms.tolist()]
  _refuse(name, 'empty', texts, forms == '')
  _refuse(name, 'missing', texts, np.isin(forms, list(_MISSING)))
  _refuse(name, 'negative', texts, [n is not None and n < 0 for n in numbers])
  if 'NA' in forms:
    warn(
      f'`{name}` has the id NA, which is one client. Where it stands for a '
      'missing value, leave out its examples.',
    )
  return forms[places]


def check_all(*parts: np.ndarray | None) -> None:
  """Warns of ids, of all parts together, that differ in case alone.

  Raises:
    ValueError: If one id is written in two ways, such as 1 and 1.0.
  """
  all_ids = {
    str(client_id)
    for ids in parts
    if ids is not None
    for client_id in np.unique(ids).tolist()
  }
  seen = id_forms.SeenIds('client')
  cases: dict[str, str] = {}
  for client_id in sorted(all_ids):
    seen.add(client_id)
    other = cases.setdefault(client_id.casefold(), client_id)
    if other != client_id:
      warn(
        f'`client` should write an id in one way, found {other!r} and '
        f'{client_id!r}, which are two clients.',
      )
      break


def _refuse(name: str, what: str, ids: np.ndarray, wrong) -> None:
  """Raises if there is a wrong one."""
  wrong = np.asarray(wrong, bool)
  if wrong.any():
    raise ValueError(
      f'`{name}` must not be {what}, found {ids.tolist()[wrong.argmax()]!r}. '
      'Leave out the examples that have no client; in a test set, give them an '
      'id that no client has, such as nobody. If it is the id of somebody, put '
      'a letter before each.'
    )
