"""Tests of how TFF's coroutines are run."""

import asyncio
import subprocess
import sys
import threading

import pytest

from tff_clipping.programs.training import coroutines


async def _fail():
  raise ValueError('no')


def test_result_and_exception_are_those_of_the_coroutine():
  assert coroutines.run(asyncio.sleep(0, 'result')) == 'result'
  with pytest.raises(ValueError, match='no'):
    coroutines.run(_fail())
  assert coroutines.run(asyncio.sleep(0, 'next')) == 'next'


def test_threads_are_kept_from_one_coroutine_to_the_next():
  threads = [
    coroutines.run(asyncio.to_thread(threading.current_thread))
    for _ in range(4)
  ]
  assert all(thread is threads[0] for thread in threads)


def test_coroutines_of_several_threads_are_run():
  results = []

  def work():
    results.append(coroutines.run(asyncio.sleep(0.01, threading.get_ident())))

  before = threading.active_count()
  for _ in range(3):
    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
      worker.start()
    for worker in workers:
      worker.join()
  assert len(results) == 9
  # At most the loop's own.
  assert threading.active_count() <= before + 2


def test_a_coroutine_is_run_where_a_loop_is_running():
  async def cell():
    return coroutines.run(asyncio.sleep(0, 'result'))

  assert asyncio.run(cell()) == 'result'


def test_a_coroutine_that_runs_another_is_refused():
  async def nested():
    return coroutines.run(asyncio.sleep(0))

  # It would wait for itself.
  with pytest.raises(RuntimeError, match='must await another'):
    coroutines.run(nested())


_FORK = """
import asyncio, os
from tff_clipping.programs.training import coroutines
coroutines.run(asyncio.sleep(0))
pid = os.fork()
if not pid:
  print(coroutines.run(asyncio.sleep(0, 'child')), flush=True)
  os._exit(0)
os.waitpid(pid, 0)
"""


@pytest.mark.slow
def test_a_fork_has_a_loop_of_its_own():
  result = subprocess.run(
    [sys.executable, '-c', _FORK],
    capture_output=True,
    text=True,
    timeout=120,
    check=True,
  )
  assert result.stdout == 'child\n'
