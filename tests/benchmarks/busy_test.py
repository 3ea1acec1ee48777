"""Tests of how busy other programs keep the machine."""

import pytest

from benchmarks import busy
from benchmarks.busy import CpuTime


def test_others_have_what_was_used_and_is_not_our_own():
  before = CpuTime(total=100.0, used=50.0, own=7.0)
  # Of 20 seconds, 12 were used, 9 of them by ourselves.
  after = CpuTime(total=120.0, used=62.0, own=16.0)
  assert busy.share_of_others(before, after) == pytest.approx(3 / 20)


def test_ticks_that_are_counted_late_are_no_negative_share():
  before, after = CpuTime(0.0, 0.0, 0.0), CpuTime(10.0, 5.0, 5.01)
  assert busy.share_of_others(before, after) == 0.0


def test_what_the_system_does_not_tell_is_not_known():
  time = CpuTime(0.0, 0.0, 1.0)
  assert busy.share_of_others(None, time) is None
  assert busy.share_of_others(time, None) is None
  # A /proc/stat of zeros, as sandboxes have it.
  assert busy.share_of_others(time, time) is None


@pytest.mark.parametrize('error', [FileNotFoundError, PermissionError])
def test_a_system_without_times_is_no_error(monkeypatch, error):
  def refuse(percpu):
    raise error

  monkeypatch.setattr(busy.psutil, 'cpu_times', refuse)
  assert busy.read_cpu_time() is None


def test_a_list_without_our_cpus_is_not_known(monkeypatch):
  monkeypatch.setattr(busy.psutil, 'cpu_times', lambda percpu: [])
  assert busy.read_cpu_time() is None


def test_only_our_cpus_count(monkeypatch):
  class Times:
    user, nice, system, idle, iowait = 1.0, 0.5, 0.25, 8.0, 0.25
    steal, guest = 2.0, 1.0

  monkeypatch.setattr(busy.psutil, 'cpu_times', lambda percpu: [Times()] * 4)
  monkeypatch.setattr(busy.os, 'sched_getaffinity', lambda pid: {1, 3})
  found = busy.read_cpu_time()
  # What another machine took counts; a guest's time is in `user` already.
  assert found[:2] == (24.0, 7.5)
  assert found.own > 0


@pytest.mark.parametrize(
  ('share', 'text'),
  [(0.004, "0.4% of the CPUs' time"), (0.3, 'NOT QUIET'), (None, 'not known')],
)
def test_a_reader_is_told(share, text):
  assert text in busy.sentence(share)
