"""A real browser for tests of pages: Chromium, without a window.

It speaks the DevTools protocol over two pipes. Tests that need it are slow, and
skip where there is none.
"""

import json
import os
import select
import shutil
import subprocess
import time

import pytest

_NAMES = ('chromium', 'chromium-browser', 'google-chrome')
_SECONDS = 60.0


def find_chromium():
  """Returns the program, or skips the test."""
  for name in _NAMES:
    if path := shutil.which(name):
      return path
  pytest.skip(f'needs one of {", ".join(_NAMES)}: apt-get install chromium')


class Browser:
  """One page of a browser, for a `with` block.

  Attributes:
    errors: What went wrong since the page was opened: exceptions, errors on
      the console, and files that were not there.
  """

  def __init__(self, folder):
    """Starts it.

    Args:
      folder: An empty folder, for its profile.
    """
    self.errors = []
    self._events, self._rest, self._number = [], b'', 0
    to_read, self._write = os.pipe()
    self._read, to_write = os.pipe()
    self._log = open(folder / 'chromium.log', 'w')
    flags = [
      *('--headless', '--no-sandbox', '--disable-gpu', '--no-first-run'),
      *('--remote-debugging-pipe', '--disable-dev-shm-usage'),
      f'--user-data-dir={folder / "profile"}',
    ]
    # It reads from 3 and writes to 4.
    self._process = subprocess.Popen(
      [
        *('bash', '-c', f'exec "$@" 3<&{to_read} 4>&{to_write}', 'bash'),
        *(find_chromium(), *flags, 'about:blank'),
      ],
      pass_fds=(to_read, to_write),
      stdin=subprocess.DEVNULL,
      stdout=self._log,
      stderr=self._log,
    )
    os.close(to_read)
    os.close(to_write)
    target = self._ask('Target.createTarget', url='about:blank')
    self._session = self._ask(
      'Target.attachToTarget', targetId=target['targetId'], flatten=True
    )['sessionId']
    for domain in ('Page', 'Runtime', 'Log'):
      self._ask(f'{domain}.enable')

  _session = None

  def __enter__(self):
    return self

  def __exit__(self, *exception):
    os.close(self._write)
    os.close(self._read)
    self._process.terminate()
    self._process.wait(timeout=_SECONDS)
    self._log.close()

  def open(self, url, width, height=900):
    """Opens a page in a window of so many pixels, and waits until it is there.

    Args:
      url: Its address.
      width: Of the window.
      height: Of the window.
    """
    self._ask(
      'Emulation.setDeviceMetricsOverride',
      width=width,
      height=height,
      deviceScaleFactor=1,
      mobile=False,
    )
    self.errors.clear()
    self._events.clear()
    self._ask('Page.navigate', url=url)
    self._wait_for('Page.loadEventFired')
    # What scripts do at last.
    self.run('new Promise(done => setTimeout(done, 100))')

  def run(self, script):
    """Returns the value of an expression in the page.

    Args:
      script: JavaScript; a promise is waited for.
    """
    found = self._ask(
      'Runtime.evaluate',
      expression=script,
      awaitPromise=True,
      returnByValue=True,
    )
    assert 'exceptionDetails' not in found, found
    return found['result'].get('value')

  def wait_until(self, script):
    """Waits until an expression in the page is true."""
    end = time.monotonic() + _SECONDS
    while not self.run(script):
      assert time.monotonic() < end, f'never true: {script}'
      time.sleep(0.1)

  def _ask(self, method, **params):
    """Sends a command and returns its result."""
    self._number += 1
    message = {'id': self._number, 'method': method, 'params': params}
    if self._session is not None:
      message['sessionId'] = self._session
    os.write(self._write, json.dumps(message).encode() + b'\0')
    while True:
      answer = self._receive()
      if answer.get('id') == self._number:
        assert 'error' not in answer, (method, answer['error'])
        return answer['result']

  def _wait_for(self, event):
    """Waits for an event, unless it has come."""
    while event not in self._events:
      self._receive()

  def _receive(self):
    """Returns the next message, and notes what it says of the page."""
    end = time.monotonic() + _SECONDS
    while b'\0' not in self._rest:
      left = max(end - time.monotonic(), 0)
      ready, _, _ = select.select([self._read], [], [], left)
      assert ready, 'the browser says nothing'
      chunk = os.read(self._read, 2**16)
      assert chunk, 'the browser ended'
      self._rest += chunk
    first, self._rest = self._rest.split(b'\0', 1)
    message = json.loads(first)
    method, params = message.get('method'), message.get('params', {})
    if method is not None:
      self._events.append(method)
    if method == 'Runtime.exceptionThrown':
      self.errors.append(params['exceptionDetails'])
    if method == 'Log.entryAdded' and params['entry']['level'] == 'error':
      self.errors.append(params['entry'])
    if method == 'Runtime.consoleAPICalled' and params['type'] == 'error':
      self.errors.append(params['args'])
    return message
