"""Files that a command writes, and never over another one."""

import os
import pathlib


def check(path: str, name: str) -> None:
  """Raises ValueError if a new file cannot be written to `path`.

  Nothing is left there.

  Args:
    path: The file.
    name: The argument that gave it, for the message.
  """
  if os.path.lexists(path):
    raise ValueError(
      f'`{name}` must be a new file, found {path!r}, which exists already.'
    )
  folder = pathlib.Path(path).parent
  if not path or not folder.is_dir() or not os.access(folder, os.W_OK):
    raise ValueError(
      f'`{name}` must be a file that can be written, found {path!r}.'
    )


def write(path: str, text: str, name: str) -> None:
  """Writes a new file; errors as in `check`.

  Args:
    path: The file.
    text: What it is to hold, without its last line end.
    name: The argument that gave it, for the message.
  """
  check(path, name)
  try:
    with open(path, 'x', encoding='utf-8') as file:
      file.write(text + '\n')
  except OSError as error:
    raise ValueError(
      f'`{name}` must be a file that can be written, found {path!r} '
      f'({error.strerror or error}).'
    ) from error
