"""Tests of tff_clipping.runtime.client_threads."""

import concurrent.futures
import gc
import threading
import time
import weakref

import numpy as np
import pytest

from tff_clipping.runtime.client_threads import ClientThreads


class _Failed(RuntimeError):
  pass


def _run(num_threads, work, num_clients, combine=lambda *_: None):
  ClientThreads(num_threads).run(work, combine, num_clients)


@pytest.mark.parametrize('num_threads', [1, 2, 7])
def test_results_are_combined_in_order_one_at_a_time(num_threads):
  rng = np.random.default_rng(0)
  seconds = rng.uniform(0, 0.004, 60)
  combined, at_once = [], threading.Lock()

  def work(position):
    time.sleep(seconds[position])
    return f'of {position}'

  def combine(position, result):
    assert at_once.acquire(blocking=False)
    assert result == f'of {position}'
    time.sleep(seconds[position] / 4)
    combined.append(position)
    at_once.release()

  _run(num_threads, work, 60, combine)
  assert combined == list(range(60))


def test_clients_work_at_the_same_time_and_no_more_than_there_are_threads():
  barrier = threading.Barrier(3)
  # It breaks unless three are there at the same time.
  _run(3, lambda _: barrier.wait(timeout=30), 30)
  lock, working, most = threading.Lock(), 0, 0

  def work(_):
    nonlocal working, most
    with lock:
      working += 1
      most = max(most, working)
    time.sleep(0.002)
    with lock:
      working -= 1

  _run(3, work, 30)
  assert most <= 3


def test_a_slow_client_lets_few_results_wait():
  started, is_enough = [], threading.Event()

  class Result:
    pass

  results = weakref.WeakSet()

  def work(position):
    started.append(position)
    if len(started) == 5:
      is_enough.set()
    if position == 0:
      assert is_enough.wait(30)
      time.sleep(0.1)
      # It and 2 for each thread.
      assert len(started) == 5
    result = Result()
    results.add(result)
    return result

  def combine(position, result):
    del position, result
    gc.collect()
    assert len(results) <= 5

  _run(2, work, 40, combine)
  assert len(started) == 40


@pytest.mark.parametrize('fails', ['work', 'combine'])
@pytest.mark.parametrize('num_threads', [1, 4])
def test_the_error_is_that_of_the_first_client_that_has_one(fails, num_threads):
  combined, started = [], []
  is_late = threading.Event()

  def work(position):
    started.append(position)
    if position == 6:
      is_late.set()
      raise _Failed('6')
    if position == 5:
      # Later than that of a later client.
      assert num_threads == 1 or is_late.wait(30)
      if fails == 'work':
        raise _Failed('5')
    return position

  def combine(position, _):
    if position == 5:
      raise _Failed('5')
    combined.append(position)

  with pytest.raises(_Failed, match='5'):
    _run(num_threads, work, 1000, combine)
  assert combined == [0, 1, 2, 3, 4]
  assert len(started) < 30


def test_nothing_is_kept_of_a_run_that_failed():
  def work(position):
    if position == 3:
      raise _Failed
    result = np.ones(1000)
    kept.append(weakref.ref(result))
    return result

  kept = []
  threads = ClientThreads(2)
  with pytest.raises(_Failed):
    threads.run(work, lambda *_: None, 10)
  gc.collect()
  assert len(kept) >= 3
  assert all(ref() is None for ref in kept)


def test_no_client_starts_once_the_caller_is_interrupted(monkeypatch):
  started, finished, combined = [], [], []

  def work(position):
    started.append(position)
    time.sleep(0.02)
    finished.append(position)

  wait, interrupts = concurrent.futures.wait, [KeyboardInterrupt]

  def wait_or_interrupt(futures):
    if interrupts:
      raise interrupts.pop()
    return wait(futures)

  monkeypatch.setattr(concurrent.futures, 'wait', wait_or_interrupt)
  threads = ClientThreads(2)
  with pytest.raises(KeyboardInterrupt):
    threads.run(work, lambda position, _: combined.append(position), 100)
  # Those at work have finished.
  assert len(started) <= 2
  assert sorted(started) == sorted(finished)
  time.sleep(0.05)
  assert len(started) <= 2
  # The threads are there for others.
  combined.clear()
  threads.run(
    lambda position: position,
    lambda position, _: combined.append(position),
    5,
  )
  assert combined == [0, 1, 2, 3, 4]
