"""Functions of a user's own, by name: `module:function`, `FILE.py:function`.

A module is found from the current folder and from PYTHONPATH, as by any other
import; a file is found by its path.
"""

import functools
import importlib
import importlib.util
import inspect
import pathlib
import sys
import traceback
import types
from collections.abc import Callable, Mapping
from typing import Any

# The name of a module that was imported from a file begins with it.
_OF_FILE = 'own_file_'


def is_function_name(name: str) -> bool:
  """Returns whether a setting names a function, and none of ours."""
  return ':' in name


def name_of(function: Callable) -> str:
  """Returns how a function is called in config.json, `module:function`."""
  name = getattr(function, '__qualname__', type(function).__qualname__)
  module = getattr(function, '__module__', None) or '__main__'
  if module.startswith(_OF_FILE):
    module = f'{module.removeprefix(_OF_FILE)}.py'
  return f'{module}:{name}'


def find(
  argument: str,
  name: str,
  given: Mapping[str, Any] = types.MappingProxyType({}),
) -> Any:
  """Returns what a setting names: what is given for the name, or its import.

  Args:
    argument: The setting, for the message.
    name: `module:function` or `FILE.py:function`.
    given: By the names that `name_of` gives: nothing of these is imported.

  Raises:
    ValueError: If the name is of another form, or nothing can be imported. The
      message has the place in the user's file.
    TypeError: If what is imported is no function.
  """
  if name in given:
    return given[name]
  module_name, _, function_name = name.rpartition(':')
  if not module_name or not function_name.isidentifier():
    raise ValueError(
      f'`{argument}` must be module:function or FILE.py:function, found '
      f'{name!r}.'
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
      f'{name!r}: {_describe(e)}'
    ) from e
  if not callable(function):
    raise TypeError(
      f'`{argument}` must name a function, found {function!r} for {name!r}.'
    )
  return function


def takes(function: Callable, name: str) -> bool:
  """Returns whether a function takes a named argument."""
  signature = _signature(function)
  return signature is not None and name in signature.parameters


def call(
  argument: str,
  function: Callable,
  given: Mapping[str, Any],
  *,
  by_name: bool = False,
) -> Any:
  """Calls a user's function.

  Args:
    argument: The setting that names it, for the message.
    function: What to call.
    given: The arguments, in their order.
    by_name: Whether the function has to call them so.

  Raises:
    TypeError: If it does not take these arguments.
    ValueError: If it fails. The message has the place in the user's file.
  """
  name, found = name_of(function), _signature(function)
  args, kwargs = ((), given) if by_name else (given.values(), {})
  if found is not None:
    try:
      found.bind(*args, **kwargs)
    except TypeError as e:
      raise TypeError(
        f'`{argument}` must be a function that takes ({", ".join(given)}), '
        f'found {name} with {found}: {e}.'
      ) from e
  try:
    return function(*args, **kwargs)
  except Exception as e:
    raise ValueError(
      f'`{argument}` must be a function that works, found that {name} failed: '
      f'{_describe(e)}'
    ) from e


def make(
  argument: str,
  function: Callable,
  kind: type,
  given: Mapping[str, Any],
  *,
  by_name: bool = False,
) -> Any:
  """Returns what `call` does; a TypeError if it is not of a kind."""
  made = call(argument, function, given, by_name=by_name)
  if not isinstance(made, kind):
    raise TypeError(
      f'`{argument}` must be a function that returns a {kind.__name__}, found '
      f'that {name_of(function)} returns {type(made).__name__}.'
    )
  return made


def _signature(function: Callable) -> inspect.Signature | None:
  """Returns the signature of a function; a builtin may have none."""
  try:
    return inspect.signature(function)
  except ValueError:
    return None


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
  library = pathlib.Path(traceback.__file__).parent
  own = [
    frame
    for frame in traceback.extract_tb(error.__traceback__)
    if 'site-packages' not in frame.filename
    and not frame.filename.startswith(('<', str(library)))
    and frame.filename != __file__
  ]
  if own:
    text += f' ({own[-1].filename}, line {own[-1].lineno})'
  return text
