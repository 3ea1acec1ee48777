"""When, with what and by which command a figure was computed."""

import dataclasses
import datetime
import importlib.metadata
import platform
import shlex
from collections.abc import Sequence

import tff_clipping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
  """When, with what and by which command something was computed.

  Attributes:
    date: The day, as YYYY-MM-DD, in UTC.
    versions: The version of each program and library.
    command: The command line.
  """

  date: str
  versions: dict[str, str]
  command: str


def build_record(argv: Sequence[str]) -> Record:
  """Returns the record of a command that runs now.

  Args:
    argv: The command line, the program's name first.
  """
  return Record(
    date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    versions={
      'tff-clipping': tff_clipping.__version__,
      **{
        name: importlib.metadata.version(name)
        for name in ('dp-accounting', 'numpy', 'scipy')
      },
      'python': platform.python_version(),
    },
    command=shlex.join(argv),
  )


def format_record(record: Record) -> str:
  """Returns a record for a person to read."""
  versions = ', '.join(f'{k} {v}' for k, v in record.versions.items())
  return f'Computed on {record.date} with {versions} by\n  {record.command}'
