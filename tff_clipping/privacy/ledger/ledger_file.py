"""The file of a privacy ledger: lines that can be added and never taken away.

Two files. `ledger.jsonl` holds one JSON object a line. Each has its number and
the SHA-256 digest of the line before it, so that a line that is changed, moved,
inserted or missing is found. `ledger.jsonl.seal` holds how many lines there are
and the digest of the last one, so that lines missing at the end are found too.
A line is written and synced first, then the seal is replaced, and only then
does `append` return; so the seal never counts a line that is not on the disk.

What a crash (kill -9, power) can leave, and what opening it does:
  * a line after the sealed ones, complete: it is kept, and counts;
  * a line after the sealed ones, cut short: it is replaced by a line that says
    so, and counts. `append` had not returned, so nothing was released, but to
    charge it is the safe side;
  * a seal of no lines and a first line cut short: it starts anew.
Everything else is damage and raises `DamagedLedgerError` with the line; for a
line that is another one, the line after it, which has its digest.

The digests have no key. They find accidents and careless edits, not somebody
who recomputes all of them, or who deletes both files.
"""

import hashlib
import json
import os
import pathlib
from typing import Any

from tff_clipping import atomic_files

# Lines after the first are shorter: a longer end of the file was not written
# here. The first has a plan, whose strategy may have many coefficients.
_MAX_TORN_BYTES = 2**16


class DamagedLedgerError(ValueError):
  """The ledger is not as it was written: its charges are not known."""


class LedgerInUseError(RuntimeError):
  """Another process, or another object in this one, has the ledger open."""


class LedgerFile:
  """An append-only file of JSON objects, locked while it is open.

  Not for several threads: the caller guards it.

  Attributes:
    path: The file.
    torn: The beginning of a line that a crash cut short. It has to be replaced
      before lines are added.
  """

  def __init__(self, path: str | os.PathLike):
    """Opens or creates the ledger at `path`, and locks and checks it.

    Args:
      path: The file; its folder must exist.

    Raises:
      DamagedLedgerError: If the ledger is not as it was written.
      LedgerInUseError: If it is open elsewhere.
      OSError: If the file system refuses.
    """
    self.path = pathlib.Path(path)
    self._pid = os.getpid()
    self._file = open(self.path, 'a+b', buffering=0)
    try:
      self._lock()
      self._read()
    except BaseException:
      self._file.close()
      raise

  @property
  def lines(self) -> list[dict[str, Any]]:
    """The contents of the lines, the header first."""
    return list(self._lines)

  def append(self, content: dict[str, Any]) -> None:
    """Adds a line of JSON values; when this returns, it is on the disk.

    Raises what `check` does, and OSError if the file system refuses. The line
    may then be in the file: the ledger is closed, and opening it again finds
    out.
    """
    self.check()
    try:
      line = self._extend(content)
      written = self._file.write(line)
      if written != len(line):
        raise OSError(f'Only {written} bytes of a line of {self.path} written.')
      os.fsync(self._file.fileno())
      self._size += len(line)
      self._write_seal()
    except BaseException:
      self._file.close()
      raise

  def check(self) -> None:
    """Raises unless the ledger is open here and as it was written.

    Raises:
      DamagedLedgerError: If the file has another size than was written, or is
        another file. The next opening finds changes within the file.
      LedgerInUseError: If this process was forked from the one that opened it.
      ValueError: If the ledger is closed.
    """
    if self._file.closed:
      raise ValueError(f'The ledger {self.path} is closed.')
    if os.getpid() != self._pid:
      raise LedgerInUseError(
        f'The ledger {self.path} belongs to process {self._pid}, which this '
        'one was forked from: open it in one of them only.'
      )
    opened = os.fstat(self._file.fileno())
    try:
      is_there = os.path.samestat(os.stat(self.path), opened)
    except FileNotFoundError:
      is_there = False
    if is_there and opened.st_size == self._size:
      return
    self._file.close()
    if not is_there:
      reason = 'the file was removed or replaced while in use'
      raise _damage(self.path, 1, reason)
    reason = (
      f'the file has {opened.st_size} bytes, not the {self._size} written'
    )
    raise _damage(self.path, len(self._lines) + 1, reason)

  def close(self) -> None:
    """Closes the file and gives up the lock."""
    self._file.close()

  def _lock(self) -> None:
    """Takes the lock, which the system gives up when the process ends."""
    import fcntl  # Not on Windows, where the rest of the package works.

    try:
      fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
      raise LedgerInUseError(
        f'The ledger {self.path} is open in another process or object: two '
        'runs cannot share one budget.'
      ) from error
    except OSError as error:
      raise OSError(
        error.errno,
        'the disk has no file locks, which keep a second program from the '
        f'budget ({error.strerror}): use another disk',
        str(self.path),
      ) from error

  def _read(self) -> None:
    """Reads what is there, and seals a line that is whole."""
    data = self.path.read_bytes()
    seal = _read_seal(self.path)
    self._lines: list[dict[str, Any]] = []
    self._digest = ''
    if seal is None and not data:
      self._write_seal()  # Of no lines: from here on there always is one.
      seal = {'lines': 0, 'digest': ''}
    self._lines, self._digest, self.torn = _parse(self.path, data, seal)
    self._size = len(data) - len(self.torn)
    if not self._lines:
      # Not even the header was whole, so nothing was ever charged.
      self._file.truncate(0)
      self.torn = b''
    elif not self.torn:
      self._write_seal()

  def replace_torn(self, recovery: dict[str, Any]) -> None:
    """Writes a whole line over the beginning of one; raises as `append`."""
    text = self.torn.decode('utf-8', errors='replace')
    # Longer than what it covers, and written by one call: a crash in between
    # leaves a line that is cut short again, never none.
    line = self._extend({**recovery, 'cut_short': text})
    descriptor = os.open(self.path, os.O_WRONLY)
    try:
      if os.pwrite(descriptor, line, self._size) != len(line):
        raise OSError(f'A line of {self.path} could not be written.')
      os.fsync(descriptor)
    finally:
      os.close(descriptor)
    self.torn = b''
    self._size += len(line)
    self._write_seal()

  def _extend(self, content: dict[str, Any]) -> bytes:
    """Adds a line in memory and returns it as it has to be written."""
    content = {
      'line': len(self._lines) + 1,
      **content,
      'previous': self._digest,
    }
    line = _encode(content)
    self._lines.append(content)
    self._digest = hashlib.sha256(line).hexdigest()
    return line + b'\n'

  def _write_seal(self) -> None:
    """Replaces the seal in one step."""
    seal = {'lines': len(self._lines), 'digest': self._digest}
    with atomic_files.replacing(_seal_path(self.path)) as new:
      new.write_bytes(_encode(seal) + b'\n')


def read_lines(path: str | os.PathLike) -> tuple[list[dict[str, Any]], bool]:
  """Returns the lines of a ledger, also while another process writes to it.

  Returns:
    The lines, the header first, and whether one more was cut short, which
    counts as a release.

  Raises:
    DamagedLedgerError: If the ledger is not as it was written.
    OSError: If the file cannot be read.
  """
  path = pathlib.Path(path)
  while True:
    seal = _read_seal(path)
    data = path.read_bytes()
    if _read_seal(path) == seal:
      break  # Nothing was added in between, or one line that is not sealed yet.
  if seal is None and not data:
    return [], False  # A run that was killed when it had made the file.
  lines, _, torn = _parse(path, data, seal)
  return lines, bool(torn)


def _parse(
  path: pathlib.Path, data: bytes, seal: dict[str, Any] | None
) -> tuple[list[dict[str, Any]], str, bytes]:
  """Returns the whole lines, the digest of the last one, and what follows."""
  if seal is None and not data.startswith(b'{"line":'):
    raise DamagedLedgerError(
      f'{path} is not a ledger: that of a run is the ledger.jsonl in its '
      'folder.'
    )
  if seal is None:
    raise _damage(path, 1, f'its seal {_seal_path(path).name} is missing')
  sealed = seal['lines']
  *complete, torn = data.split(b'\n')
  lines, digest = [], ''
  for number, line in enumerate(complete, start=1):
    lines.append(_check_line(path, number, line, digest))
    digest = hashlib.sha256(line).hexdigest()
    if number == sealed and digest != seal['digest']:
      raise _damage(path, number, 'it is not the line that was sealed')
  count = len(complete)
  if count < sealed:
    raise _damage(
      path, count + 1, f'{sealed} lines were written, {count} of them are whole'
    )
  # A line is sealed before the next one is begun.
  if count + bool(torn) > sealed + 1:
    raise _damage(path, sealed + 1, 'lines follow that were never sealed')
  if count and len(torn) > _MAX_TORN_BYTES:
    raise _damage(path, count + 1, f'it has {len(torn)} bytes and no end')
  return lines, digest, torn


def _check_line(
  path: pathlib.Path, number: int, line: bytes, previous: str
) -> dict[str, Any]:
  """Returns the contents of a line, given the digest of the line before it."""
  try:
    content = json.loads(line)
    as_written = isinstance(content, dict) and _encode(content) == line
  except (ValueError, RecursionError) as error:
    raise _damage(path, number, 'it is not JSON') from error
  if not as_written:
    raise _damage(path, number, 'it is not as it was written')
  if content.get('line') != number:
    raise _damage(path, number, f'it says that it is {content.get("line")!r}')
  if content.get('previous') != previous:
    raise _damage(path, number, 'it does not follow from the line before it')
  return content


def _damage(path: pathlib.Path, number: int, reason: str) -> DamagedLedgerError:
  """Returns the error for a line, with what to do about it."""
  return DamagedLedgerError(
    f'Line {number} of {path} is damaged: {reason}. What was charged is not '
    'known: restore the ledger and its seal from a copy that is as new as the '
    'last release, or count the budget as spent.'
  )


def _seal_path(path: pathlib.Path) -> pathlib.Path:
  """Returns where the seal of a ledger is."""
  return path.with_name(path.name + '.seal')


def _read_seal(path: pathlib.Path) -> dict[str, Any] | None:
  """Returns the seal of a ledger, or None if there is none yet."""
  seal_path = _seal_path(path)
  try:
    data = seal_path.read_bytes()
  except FileNotFoundError:
    return None
  try:
    seal = json.loads(data)
  except ValueError:
    seal = None
  if (
    not isinstance(seal, dict)
    or type(seal.get('lines')) is not int
    or seal['lines'] < 0
    or not isinstance(seal.get('digest'), str)
  ):
    raise _damage(seal_path, 1, 'it is not a seal')
  return seal


def _encode(content: dict[str, Any]) -> bytes:
  """Returns the one line that stands for `content`."""
  return json.dumps(
    content, separators=(',', ':'), ensure_ascii=True, allow_nan=False
  ).encode()
