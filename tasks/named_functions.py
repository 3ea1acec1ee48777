"""Functions of a user's own: themselves, or by name.

A name is `module:function`, found from the current folder and from PYTHONPATH
as by any other import, or `FILE.py:function`.
"""

import functools
import importlib
import importlib.util
import pathlib
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

# The name of a module that was imported from a file begins with it.
_OF_FILE = 'own_file_'
_ROOT = pathlib.Path(__file__).parents[1]
# How the names of files of Python, and of ours, begin.
_LIBRARIES = (
  *('<', f'{pathlib.Path(traceback.__file__).parent}/'),
  *(f'{_ROOT}/tasks/', f'{_ROOT}/tff_clipping/'),
)


def is_own(setting: Any) -> bool:
  """Returns whether a setting is a user's function, or names one."""
  return not isinstance(setting, str) or ':' in setting


def name_of(setting: Any) -> str:
  """Returns how a setting is called in config.json, `module:function`."""
  if isinstance(setting, str):
    return setting
  name = getattr(setting, '__qualname__', type(setting).__qualname__)
  module = getattr(setting, '__module__', None) or '__main__'
  if module.startswith(_OF_FILE):
    module = f'{module.removeprefix(_OF_FILE)}.py'
  return f'{module}:{name}'


def find(argument: str, setting: Any) -> Any:
  """Returns what a setting is, or names.

  Args:
    argument: The setting, for the message.
    setting: A function, or its name.

  Raises:
    ValueError: If the name is of another form, or nothing can be imported. The
      message has the place in the user's file.
    TypeError: If what is imported is no function.
  """
  if not isinstance(setting, str):
    return setting
  module_name, _, function_name = setting.rpartition(':')
  if not module_name:
    raise ValueError(
      f'`{argument}` must be module:function or FILE.py:function, found '
      f'{setting!r}.'
    )
  try:
    module = (
      _import_file(str(pathlib.Path(module_name).expanduser().resolve()))
      if module_name.endswith('.py')
      else importlib.import_module(module_name)
    )
    function = getattr(module, function_name)
  except Exception as e:
    raise ValueError(
      f'`{argument}` must name a function that can be imported, found '
      f'{setting!r}: {_describe(e)}'
    ) from e
  if not callable(function):
    raise TypeError(
      f'`{argument}` must name a function, found {function!r} for {setting!r}.'
    )
  return function


def call(argument: str, function: Callable, *args: Any, **kwargs: Any) -> Any:
  """Returns what a user's function returns; `argument` is its setting.

  Raises:
    ValueError: If it fails. The message has the place in the user's file.
  """
  try:
    return function(*args, **kwargs)
  except Exception as e:
    raise ValueError(
      f'`{argument}` must be a function that works, found that '
      f'{name_of(function)} failed: {_describe(e)}'
    ) from e


def make(
  argument: str, kind: type, function: Callable, *args: Any, **kwargs: Any
) -> Any:
  """Returns what `call` does; a TypeError if it is not of a kind."""
  made = call(argument, function, *args, **kwargs)
  if not isinstance(made, kind):
    raise TypeError(
      f'`{argument}` must be a function that returns a {kind.__name__}, found '
      f'that {name_of(function)} returns {type(made).__name__}.'
    )
  return made


def is_users(path: str) -> bool:
  """Returns whether a file of a traceback is a user's own."""
  is_librarys = 'site-packages' in path or '__autograph_generated_file' in path
  return not is_librarys and not path.startswith(_LIBRARIES)


@functools.cache
def _import_file(path: str) -> types.ModuleType:
  """Imports a file, once for all the functions that are taken from it."""
  name = f'{_OF_FILE}{pathlib.Path(path).stem}'
  spec = importlib.util.spec_from_file_location(name, path)
  module = importlib.util.module_from_spec(spec)
  sys.modules[name] = module
  spec.loader.exec_module(module)
  return module


def _describe(error: Exception) -> str:
  """Returns what went wrong, and where in the user's own files."""
  text = f'{type(error).__name__}: {error}'
  own = [
    frame
    for frame in traceback.extract_tb(error.__traceback__)
    if is_users(frame.filename)
  ]
  if own:
    text += f' ({own[-1].filename}, line {own[-1].lineno})'
  return text
