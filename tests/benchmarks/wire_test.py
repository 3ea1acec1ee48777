"""Tests of the wire that delays and loses frames, without network devices."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

from benchmarks import wire


@contextlib.contextmanager
def _wire(**settings) -> Iterator[tuple[socket.socket, socket.socket]]:
  """Yields both ends of a wire."""
  near, near_device = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
  far, far_device = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
  end, stop = os.pipe()
  carrier = threading.Thread(
    target=wire.carry,
    args=(near_device.fileno(), far_device.fileno(), end),
    kwargs=settings,
  )
  carrier.start()
  try:
    yield near, far
  finally:
    os.close(stop)
    carrier.join(timeout=10)
    for file in (near, near_device, far, far_device):
      file.close()
    os.close(end)
  assert not carrier.is_alive()


def test_frames_keep_their_order_and_bounds():
  frames = [bytes([i]) * (i + 1) for i in range(50)]
  with _wire(delay=0.0, loss=0.0) as ends:
    for sender, receiver in (ends, ends[::-1]):
      for frame in frames:
        sender.send(frame)
      assert [receiver.recv(100) for _ in frames] == frames


def test_what_the_far_end_sends_is_late():
  with _wire(delay=0.5, loss=0.0) as (near, far):
    start = time.monotonic()
    far.send(b'a')
    assert near.recv(100) == b'a'
    assert time.monotonic() - start >= 0.5


def test_a_share_of_what_the_far_end_sends_is_lost():
  received = 0
  with _wire(delay=0.0, loss=0.25) as (near, far):
    near.settimeout(0.3)
    # In parts, since a socket holds few frames.
    for _ in range(10):
      for _ in range(100):
        far.send(b'a')
      with contextlib.suppress(TimeoutError):
        while near.recv(100):
          received += 1
  # Four standard deviations of a binomial of 1,000.
  assert abs(received - 750) < 55


def test_nothing_that_the_near_end_sends_is_late_or_lost():
  with _wire(delay=60.0, loss=1.0) as (near, far):
    near.send(b'a')
    assert far.recv(100) == b'a'
