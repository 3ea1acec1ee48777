"""A headless Chromium that tests ask about a page, over the pipe it offers."""

import contextlib
import fcntl
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

_NAMES = ('chromium', 'chromium-browser', 'google-chrome')
# Chromium reads commands from the first of these, and answers on the second.
_COMMANDS, _ANSWERS = 3, 4
# Runs a program with two pipes as these numbers. In a process of its own, as
# Python code after a fork crashes where TensorFlow's threads run.
_WITH_PIPES = f"""
import os, sys
for pipe, number in zip(sys.argv[1].split(), ({_COMMANDS}, {_ANSWERS})):
  os.dup2(int(pipe), number)
os.execv(sys.argv[2], sys.argv[2:])
"""
_ERRORS = ('Runtime.exceptionThrown', 'Log.entryAdded')


class Page:
  """A page that is open in the browser.

  Attributes:
    errors: What the browser has complained of, as it said it.
  """

  def __init__(self, commands: int, answers: int):
    self._commands = os.fdopen(commands, 'wb', 0)
    self._answers = os.fdopen(answers, 'rb', 0)
    self._ids = itertools.count(1)
    self._session: dict[str, str] = {}
    self._rest = b''
    self._events: list[str] = []
    self.errors: list[Any] = []
    target = self.call('Target.createTarget', url='about:blank')
    attached = self.call('Target.attachToTarget', **target, flatten=True)
    self._session = {'sessionId': attached['sessionId']}
    for domain in ('Page', 'Runtime', 'Log'):
      self.call(f'{domain}.enable')

  def call(self, method: str, **params: Any) -> dict[str, Any]:
    """Calls a method of the DevTools protocol, and returns its result."""
    number = next(self._ids)
    message = {'id': number, 'method': method, 'params': params}
    text = json.dumps(message | self._session)
    self._commands.write(text.encode() + b'\0')
    while True:
      answer = self._read()
      if answer.get('id') == number:
        assert 'error' not in answer, answer
        return answer['result']

  def open(self, page: pathlib.Path | str, *, width: int) -> None:
    """Opens a file or an address, so many pixels wide, until it is drawn."""
    self.call(
      'Emulation.setDeviceMetricsOverride',
      width=width,
      height=800,
      deviceScaleFactor=1,
      mobile=width < 700,
    )
    self._events.clear()
    url = page if isinstance(page, str) else page.absolute().as_uri()
    self.call('Page.navigate', url=url)
    while 'Page.loadEventFired' not in self._events:
      self._read()

  def evaluate(self, expression: str) -> Any:
    """The value of an expression of JavaScript; a promise is waited for."""
    found = self.call(
      'Runtime.evaluate',
      expression=expression,
      returnByValue=True,
      awaitPromise=True,
    )
    return found['result'].get('value')

  def _read(self) -> dict[str, Any]:
    """The next message, with what it complains of kept in `errors`."""
    while b'\0' not in self._rest:
      read = os.read(self._answers.fileno(), 1 << 16)
      assert read, 'the browser has ended'
      self._rest += read
    text, _, self._rest = self._rest.partition(b'\0')
    message = json.loads(text)
    method, params = message.get('method', ''), message.get('params', {})
    self._events.append(method)
    if method in _ERRORS or params.get('type') in ('error', 'warning'):
      self.errors.append(params)
    return message


@contextlib.contextmanager
def running(profile: pathlib.Path) -> Iterator[Page]:
  """Runs the browser for a body, with a page; skips where none is installed.

  Args:
    profile: A folder for its files.
  """
  program = next(filter(None, map(shutil.which, _NAMES)), None)
  if program is None:
    pytest.skip('needs Chromium: apt-get install chromium')
  ends = [*os.pipe(), *os.pipe()]
  # Out of the way of the numbers that the browser wants.
  commands_in, commands, answers, answers_in = (
    fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends
  )
  for end in ends:
    os.close(end)

  process = subprocess.Popen(
    [
      sys.executable,
      '-c',
      _WITH_PIPES,
      f'{commands_in} {answers_in}',
      program,
      '--headless',
      # Root has no sandbox; the page is our own.
      '--no-sandbox',
      '--disable-gpu',
      '--disable-dev-shm-usage',
      '--remote-debugging-pipe',
      f'--user-data-dir={profile}',
    ],
    pass_fds=(commands_in, answers_in),
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
  )
  os.close(commands_in)
  os.close(answers_in)
  try:
    yield Page(commands, answers)
  finally:
    process.kill()
    process.wait()
