"""A Ray for one program on this machine, which ends when that program does.

  python tff_clipping/runtime/ray/local_head.py NUM_CPUS ERRORS

Prints its address, and ends with the standard input, so also when the program
is killed. If Ray ends first, it ends the program without a word: then this is
said on the program's standard error, the open file of number ERRORS.

There are two processes: one starts Ray, and ends it if a part of Ray is
lost; the other one waits. Whichever is killed, the other one ends all that Ray
has started, and deletes its folder. They are not of the program, since Ray
forks when it starts, which may hang in a process that has the threads of
TensorFlow. Ray is on the loopback interface alone: whoever reaches its ports
can run any code.
"""

import contextlib
import logging
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable

# What a program says that ends by itself, and not because Ray is lost.
END = 'end'
_LOOPBACK = '127.0.0.1'
_LOST = b'Error: Ray on this machine has ended, which ends the program.\n'
_END_SECONDS = 20.0
_LAST_SECONDS = 3.0


def wait(num_cpus: str, errors: str) -> None:
  """Lets Ray run until the standard input or Ray ends."""
  # The program decides when to end.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  # Ray's own folder is left alone: it says which cluster 'auto' is. In /tmp,
  # because the paths of its sockets must be short.
  folder = tempfile.mkdtemp(prefix='ray-', dir='/tmp')
  head = subprocess.Popen(
    [sys.executable, __file__, 'run', num_cpus, folder],
    stdin=subprocess.PIPE,
    # A group of processes with all that Ray starts.
    start_new_session=True,
  )
  is_over = threading.Event()

  def end_head(word: str) -> None:
    if word != END:
      # Where Ray has ended the program, it ends what has started it as well.
      with contextlib.suppress(subprocess.TimeoutExpired):
        head.wait(_LAST_SECONDS)
    if head.poll() is None:
      is_over.set()
      _kill(head.pid)

  _when_input_ends(end_head)
  try:
    head.wait()
    if not is_over.is_set():
      os.write(int(errors), _LOST)
  finally:
    end(head.pid, folder)


def run(num_cpus: str, folder: str) -> None:
  """Runs Ray until the standard input ends."""
  os.environ['RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER'] = '0'
  # What TensorFlow writes in the workers, and leaves where they are killed.
  os.environ['TMPDIR'] = folder
  import ray

  group = str(os.getpid())
  _when_input_ends(
    # This process is of the group too.
    lambda _: subprocess.Popen(
      [sys.executable, __file__, 'end', group, folder], start_new_session=True
    )
  )
  warnings.simplefilter('ignore')
  info = ray.init(
    address='local',
    num_cpus=int(num_cpus),
    include_dashboard=False,
    log_to_driver=False,
    logging_level=logging.CRITICAL,
    _node_ip_address=_LOOPBACK,
    _temp_dir=folder,
  )
  print(info.address_info['gcs_address'], flush=True)
  threading.Event().wait()


def end(group: int | str, folder: str) -> None:
  """Kills a group of processes, and deletes their folder."""
  _kill(int(group))
  deadline = time.monotonic() + _END_SECONDS
  # A process that is about to end may still write.
  while pathlib.Path(folder).exists() and time.monotonic() < deadline:
    shutil.rmtree(folder, ignore_errors=True)
    time.sleep(0.1)


def _when_input_ends(action: Callable[[str], object]) -> None:
  """Does something, in a thread, with what the standard input has said."""

  def read_and_act():
    action(sys.stdin.read())

  threading.Thread(target=read_and_act, daemon=True).start()


def _kill(group: int) -> None:
  with contextlib.suppress(ProcessLookupError):
    os.killpg(group, signal.SIGKILL)


if __name__ == '__main__':
  if sys.argv[1] == 'run':
    run(*sys.argv[2:])
  elif sys.argv[1] == 'end':
    end(*sys.argv[2:])
  else:
    wait(*sys.argv[1:])
