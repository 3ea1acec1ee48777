"""What the commands have in common: flags, signals, messages in one line."""

import contextlib
import gc
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from absl import app, flags, logging

from tasks import config, named_functions
from tff_clipping.interruption import SIGNALS, Interrupted, Interruption

# What the library calls what a flag gives.
_FLAGS = {
  **{'model_fn': 'model', 'process': 'aggregator', 'bits': 'sum_bits'},
  'address': 'runtime',
}
# Modules whose warnings are for whoever gives the flags.
_OURS = ('analysis', 'tasks', 'tff_clipping')

# TensorFlow writes the way to an error before it, and a node behind it.
_WAY = re.compile(
  r'(in user code:|Graph execution error:).*^ *File "[^\n]*\n'
  r'( *\S[^\n]*\n)*\s*(\w+Error: )?',
  re.DOTALL | re.MULTILINE,
)
_NODE = re.compile(r"\s*(for '|\[\[)\{\{node .*", re.DOTALL)

_WRONG_SETTINGS = (TypeError, ValueError, ModuleNotFoundError, flags.Error)

_show_of_python = warnings.showwarning


def run(main: Callable[[], int]) -> None:
  """Parses the flags, runs a command and exits with its code.

  Of an exception, the code is 2 for a wrong flag or setting (TypeError,
  ValueError, absl.flags.Error, ModuleNotFoundError), 5 for a file (OSError) and
  130, 143 or 129 for Ctrl-C, SIGTERM or SIGHUP, each with one line; any other
  is raised.

  `absl.app.run` would break Keras here: TensorFlow 2.14, imported after it has
  started, runs an operation in the midst of its own import.

  Args:
    main: Returns the exit code.
  """
  _open_streams()
  if {'--help', '--helpshort'} & set(sys.argv[1:]):
    _print_help()
    sys.exit(0)
  app.define_help_flags()
  try:
    parse(flags.FLAGS, sys.argv)
  except flags.Error as e:
    print_error(e)
    sys.exit(2)
  except SystemExit:
    # Only --helpfull and its like end here, and absl calls that a failure.
    sys.exit(0)
  warnings.showwarning = _show_warning
  logging.use_absl_handler()
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.WARNING)
  signals = Interruption()
  # A script that starts a command in the background has it ignore Ctrl-C.
  heard = [x for x in SIGNALS if signal.getsignal(x) != signal.SIG_IGN]
  try:
    with signals.catch(heard):
      code = main()
  except (Interrupted, Exception) as e:
    # A signal can become another exception in TensorFlow.
    if signals.arrived is not None:
      print('Interrupted.', file=sys.stderr)
      code = signals.arrived.exit_code
    elif isinstance(e, (*_WRONG_SETTINGS, OSError)):
      print_error(e)
      code = 2 if isinstance(e, _WRONG_SETTINGS) else 5
    else:
      raise
  if code and signals.arrived is not None:
    # One that `main` took for another error.
    code = signals.arrived.exit_code
  sys.exit(code)


class _Output:
  """A stream of text whose failures end nothing.

  A full disk, a reader that has gone, or a locale that lacks a letter loses
  what is printed, and no run.
  """

  def __init__(self, stream: Any):
    self._stream = stream
    if hasattr(stream, 'reconfigure'):
      stream.reconfigure(errors='backslashreplace')

  def __getattr__(self, name: str) -> Any:
    return getattr(self._stream, name)

  def write(self, text: str) -> int:
    """Writes, or drops the text."""
    with self._dropping():
      self._stream.write(text)
    return len(text)

  def flush(self) -> None:
    """Flushes, or drops what was written."""
    with self._dropping():
      self._stream.flush()

  @contextlib.contextmanager
  def _dropping(self) -> Iterator[None]:
    try:
      yield
    except (OSError, ValueError):
      # What is in the buffer goes nowhere, or Python would complain at its end.
      with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


def parse(values: flags.FlagValues, arguments: Sequence[str]) -> None:
  """Parses the flags behind the name of a program.

  Raises:
    absl.flags.Error: If one is wrong, or an argument is no flag.
  """
  left = values(arguments)[1:]
  if left:
    raise flags.Error(f'Only flags are taken, found {left[0]!r}.')


@contextlib.contextmanager
def importing() -> Iterator[None]:
  """Ends the program on a signal in the body, as `run` does elsewhere.

  Python would print where in which module it was, and modules that are half
  imported turn the exception into others. Programs that handle a signal
  themselves, or ignore it, are left alone.

  Nor does Python look for garbage in the body. Modules make nothing else than
  what stays, and for TensorFlow and TFF the search takes half a second.
  """
  was_enabled = gc.isenabled()
  gc.disable()
  before = {signum: signal.getsignal(signum) for signum in SIGNALS}
  ours = {
    signum: handler
    for signum, handler in before.items()
    if isinstance(getattr(handler, '__self__', None), Interruption)
    or handler == signal.default_int_handler
  }
  for signum in ours:
    signal.signal(signum, _end)
  try:
    yield
  finally:
    for signum, handler in ours.items():
      signal.signal(signum, handler)
    if was_enabled:
      gc.enable()


def _end(signum: int, frame: Any) -> None:
  del frame
  print('Interrupted.', file=sys.stderr, flush=True)
  # Modules that are half imported have nothing to tidy up.
  os._exit(128 + signum)


def _open_streams() -> None:
  """Lets nothing that is printed end a program, or reach one of its files."""
  for number in range(3):
    try:
      os.fstat(number)
    except OSError:
      # The lowest number that is free. Else a file of the run would get it.
      os.open(os.devnull, os.O_RDWR)
  for number, name in ((1, 'stdout'), (2, 'stderr')):
    stream = getattr(sys, name) or open(number, 'w', closefd=False)
    setattr(sys, name, _Output(stream))


def _print_help() -> None:
  """Prints what the program is, and its flags in groups."""
  main = sys.modules['__main__']
  print(main.__doc__)
  shown = ('', *config.GROUPS) if 'task' in flags.FLAGS else ('',)
  for group in shown:
    print(flags.FLAGS.module_help(group or sys.argv[0]))
  print('\nAlso --flagfile=FILE, --verbosity=1 and --helpfull.')


def print_error(error: Exception) -> None:
  """Prints an error in one line, with arguments as the flags that they are.

  With --verbosity=1, where it comes from stands before it.
  """
  logging.debug('What was raised:', exc_info=error)
  print(f'Error: {_with_flags(error)}', file=sys.stderr)


def _show_warning(message, category, *args, **kwargs) -> None:
  """Prints our warnings as errors are printed, and others as Python does."""
  if category.__module__.partition('.')[0] in _OURS:
    print(f'Warning: {_with_flags(message)}', file=sys.stderr)
  else:
    _show_of_python(message, category, *args, **kwargs)


def _with_flags(message: Any) -> str:
  """Returns a message in one line, with arguments as the flags they are."""
  # absl begins some of its own with a word of its own.
  text = str(message).removeprefix('ERROR:: ')
  if _WAY.search(text):
    text = _NODE.sub('', _WAY.sub(_place, text))
  text = ' '.join(text.split())
  # No flag begins a run anew in its folder, where its ledger is.
  text = text.replace(
    'with `start_over=True`, where each round is charged again',
    'in a new `output_dir`, whose epsilon adds to that of this run',
  )
  for name in flags.FLAGS:
    text = text.replace(f'`{name}`', f'--{name}')
  for name, flag in _FLAGS.items():
    if flag in flags.FLAGS:
      text = text.replace(f'`{name}`', f'--{flag}')
  return text


def _place(way: re.Match) -> str:
  """Returns the node and the last line of a user's file on it, if any."""
  node = re.findall(r'at node (\S+)', way[0])
  lines = [
    f'{path}, line {line}'
    for path, line in re.findall(r'File "([^"]+)", line (\d+)', way[0])
    if named_functions.is_users(path)
  ]
  return ''.join(f'{each}: ' for each in (*node[:1], *lines[-1:]))
