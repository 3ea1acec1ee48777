"""What the commands have in common: flags, and messages in one line."""

import gc
import sys
import warnings
from collections.abc import Callable, Sequence

from absl import app, flags, logging

from tasks.settings import interrupts

# What the library calls what a flag gives.
_FLAGS = {'model_fn': 'model', 'process': 'aggregator'}
# Modules whose warnings are for whoever gives the flags.
_OURS = ('analysis', 'tasks', 'tff_clipping')


def run(main: Callable[[Sequence[str]], int]) -> None:
  """Parses the flags, runs a command and exits with its code; 130 by Ctrl-C.

  `absl.app.run` would break Keras here: TensorFlow 2.14, imported after it has
  started, runs an operation in the midst of its own import.

  Args:
    main: Takes the arguments that are no flags, the first of which is the name
      of the program, and returns the exit code.
  """
  app.define_help_flags()
  try:
    argv = flags.FLAGS(sys.argv)
  except flags.UnrecognizedFlagError as e:
    print_error(flags.Error(_suggest_flags(e)))
    sys.exit(2)
  except flags.Error as e:
    print_error(e)
    sys.exit(2)
  except SystemExit:
    # Only --help and its like end here, and absl calls that a failure.
    sys.exit(0)
  warnings.showwarning = _warning_printer(warnings.showwarning)
  logging.use_absl_handler()
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.WARNING)
  try:
    with interrupts.remembering():
      code = main(argv)
  except (KeyboardInterrupt, Exception) as e:
    if not isinstance(e, KeyboardInterrupt) and not interrupts.was_received():
      raise
    print('Interrupted.', file=sys.stderr)
    code = 130
  _drop_first_context()
  # One that `main` took for another error.
  sys.exit(130 if code and interrupts.was_received() else code)


def _drop_first_context() -> None:
  """Deletes TFF's first context, which prints errors if it is deleted later.

  A run that ends before its own context is set still has it.
  """
  if 'tff_clipping.runtime' in sys.modules:
    sys.modules['tff_clipping.runtime'].set_default_context()
    gc.collect()


def _suggest_flags(error: flags.UnrecognizedFlagError) -> str:
  """Returns an error in words, with the flags that may have been meant.

  For a part of a name, such as `epsilon`, these are the names that it is a part
  of; else those that absl finds to be spelled alike.
  """
  meant = [name for name in flags.FLAGS if error.flagname in name.split('_')]
  if not meant:
    return str(error)
  said = str(error).partition('. Did you mean')[0]
  return f'{said}. Did you mean: {", ".join(meant)} ?'


def check_flags_only(argv: Sequence[str]) -> None:
  """Raises a `ValueError` if there is an argument that is no flag."""
  if len(argv) > 1:
    raise ValueError(f'Only flags are taken, found {argv[1]!r}.')


def print_error(error: Exception) -> None:
  """Prints an error in one line, with arguments as the flags that they are.

  With --verbosity=1, where it comes from stands before it.
  """
  logging.debug('What was raised:', exc_info=error)
  print(f'Error: {_with_flags(error)}', file=sys.stderr)


def _warning_printer(show: Callable[..., None]) -> Callable[..., None]:
  """Returns what prints our warnings as errors are printed, once each.

  Args:
    show: What shows all others.
  """
  printed = set()

  def show_or_print(message, category, *args, **kwargs):
    if category.__module__.partition('.')[0] not in _OURS:
      show(message, category, *args, **kwargs)
    elif str(message) not in printed:
      printed.add(str(message))
      print(f'Warning: {_with_flags(message)}', file=sys.stderr)

  return show_or_print


def _with_flags(message: Exception) -> str:
  """Returns a message in one line, with arguments as the flags they are."""
  # absl begins some of its own with a word of its own.
  text = ' '.join(str(message).removeprefix('ERROR:: ').split())
  for name in flags.FLAGS:
    text = text.replace(f'`{name}`', f'--{name}')
  for name, flag in _FLAGS.items():
    if flag in flags.FLAGS:
      text = text.replace(f'`{name}`', f'--{flag}')
  return text
