"""Tests of how TFF's coroutines are run."""

import asyncio
import threading

import pytest

from tff_clipping.programs import coroutines


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


def test_each_thread_has_a_loop_of_its_own():
  results = []

  def work():
    results.append(coroutines.run(asyncio.sleep(0.01, threading.get_ident())))

  workers = [threading.Thread(target=work) for _ in range(3)]
  for worker in workers:
    worker.start()
  for worker in workers:
    worker.join()
  assert len(results) == 3
