"""Counts the tests of TensorFlow Federated that fail in our context.

  git clone --branch=v0.87.0 URL_OF_TFF DIR
  python -m benchmarks.tff_tests --checkout=DIR --output=FILE

The checkout is only read for its tests, which TFF's wheel lacks; what they test
is the TFF that is installed, and the checkout must be of its version. Each test
file runs in a process of its own. What fails in our context is run again in
TFF's native one: failures there are not ours. Prints each failure that is, with
the last line of its error; TFF's own output goes to FILE.log.
"""

import collections
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import unittest
from collections.abc import Iterator, Sequence

from absl import app, flags

_CHECKOUT = flags.DEFINE_string(
  'checkout', None, 'The folder of a checkout of TFF.', required=True
)
_FILES = flags.DEFINE_list(
  'files',
  [f'{room}/**/*_test.py' for room in ('aggregators', 'analytics', 'learning')],
  'Patterns of test files, from tensorflow_federated/python.',
)
_OUTPUT = flags.DEFINE_string(
  'output', 'tff_tests.jsonl', 'Where to write a line for each test.'
)
_SECONDS = flags.DEFINE_integer(
  'seconds_per_file', 1800, 'After which a test file is given up.'
)

_ROOT = pathlib.Path('tensorflow_federated/python')
_IN_PROCESS, _NATIVE = 'in_process', 'native'


def main(argv: Sequence[str]) -> None:
  """Runs the files, prints and saves."""
  del argv
  root = pathlib.Path(_CHECKOUT.value).resolve()
  paths = sorted(
    {
      path.relative_to(root)
      for pattern in _FILES.value
      for path in (root / _ROOT).glob(pattern)
    }
  )
  if not paths:
    raise app.UsageError(
      f'`--checkout` must have files {", ".join(_FILES.value)} in {_ROOT}, '
      f'found none in {root}.'
    )
  counts = collections.Counter()
  with open(_OUTPUT.value, 'w') as output:
    for path in paths:
      results = _judge(_run(root, path, _IN_PROCESS), root, path)
      for result in results:
        counts[result['outcome']] += 1
        output.write(json.dumps(result) + '\n')
        if result['outcome'] == 'failed':
          print(f'{result["test"]}: {result["error"]}', flush=True)
      output.flush()
  print(', '.join(f'{n} {outcome}' for outcome, n in sorted(counts.items())))


def run_file(root: str, path: str, context: str, names: str) -> None:
  """Runs one test file in this process; prints a line for each test.

  Args:
    root: The checkout.
    path: The file in it.
    context: 'in_process' or 'native'.
    names: The tests to run, as JSON; all if there are none.
  """
  # Tests write to the standard output too.
  lines = os.fdopen(os.dup(1), 'w')
  os.dup2(2, 1)
  # By it TFF ends its workers, and waits; a shell's background jobs ignore it.
  signal.signal(signal.SIGINT, signal.default_int_handler)
  # Only what the installed TFF lacks comes from the checkout.
  sys.meta_path.append(_CheckoutFinder(pathlib.Path(root)))
  import tensorflow_federated as tff

  from tff_clipping import runtime

  flags.FLAGS(['tff_tests', f'--checkout={root}'])
  module = importlib.import_module(_module_name(pathlib.Path(path)))
  # As the files of TFF set it, with one client where no argument says how many.
  tff.backends.test.set_sync_test_cpp_execution_context(default_num_clients=1)
  if context == _IN_PROCESS:
    runtime.set_default_context()
  suite = unittest.defaultTestLoader.loadTestsFromModule(module)
  wanted = set(json.loads(names))
  try:
    for test in _tests(suite):
      if not wanted or test.id() in wanted:
        print(json.dumps(_outcome(test)), file=lines, flush=True)
  finally:
    lines.flush()
    # TFF's workers hold what they print to open, and outlive this process.
    os.killpg(0, signal.SIGKILL)


class _CheckoutFinder(importlib.abc.MetaPathFinder):
  """Finds the modules that TFF's tests share, and its wheel lacks."""

  def __init__(self, root: pathlib.Path):
    self._root = root

  def find_spec(self, fullname, path, target=None):
    del path, target
    file = self._root / fullname.replace('.', '/')
    if file.with_suffix('.py').is_file():
      return importlib.util.spec_from_file_location(
        fullname, file.with_suffix('.py')
      )
    if (file / '__init__.py').is_file():
      return importlib.util.spec_from_file_location(
        fullname, file / '__init__.py', submodule_search_locations=[str(file)]
      )
    return None


def _run(
  root: pathlib.Path,
  path: pathlib.Path,
  context: str,
  names: Sequence[str] = (),
) -> list[dict[str, str]]:
  """Returns what each test of a file has come to, in a process of its own."""
  code = (
    'import sys; from benchmarks import tff_tests; '
    'tff_tests.run_file(*sys.argv[1:])'
  )
  with open(f'{_OUTPUT.value}.log', 'a') as log:
    process = subprocess.Popen(
      [sys.executable, '-c', code, root, path, context, json.dumps(names)],
      stdout=subprocess.PIPE,
      stderr=log,
      text=True,
      # It ends with all that it has started.
      start_new_session=True,
    )
    try:
      printed, _ = process.communicate(timeout=_SECONDS.value)
      reason = f'The process ended with {process.returncode}.'
    except subprocess.TimeoutExpired:
      with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
      printed, _ = process.communicate()
      reason = f'Not done in {_SECONDS.value} seconds.'
  results = [json.loads(line) for line in printed.splitlines()]
  if not results or process.returncode != -signal.SIGKILL:
    results.append(dict(test=str(path), outcome='failed', error=reason))
  return results


def _judge(
  results: list[dict[str, str]], root: pathlib.Path, path: pathlib.Path
) -> list[dict[str, str]]:
  """Returns the results, where what fails natively too is named so."""
  failed = [r['test'] for r in results if r['outcome'] == 'failed']
  if failed:
    natively = _run(root, path, _NATIVE, failed)
    passed = {r['test'] for r in natively if r['outcome'] == 'passed'}
    for result in results:
      if result['test'] in failed and result['test'] not in passed:
        result['outcome'] = 'failed natively too'
  return results


def _outcome(test: unittest.TestCase) -> dict[str, str]:
  """Runs a test, and returns what it has come to."""
  result = unittest.TestResult()
  test.run(result)
  if result.skipped:
    return dict(test=test.id(), outcome='skipped', error='')
  if result.wasSuccessful():
    return dict(test=test.id(), outcome='passed', error='')
  _, text = (*result.errors, *result.failures)[0]
  print(test.id(), text, file=sys.stderr)
  lines = [line.strip() for line in text.splitlines() if line.strip()]
  return dict(test=test.id(), outcome='failed', error=lines[-1])


def _tests(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
  """Yields the tests of nested suites."""
  for test in suite:
    if isinstance(test, unittest.TestSuite):
      yield from _tests(test)
    else:
      yield test


def _module_name(path: pathlib.Path) -> str:
  return '.'.join(path.with_suffix('').parts)


if __name__ == '__main__':
  app.run(main)
