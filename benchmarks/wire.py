"""A wire between two network devices that delays and loses frames.

  python -m benchmarks.wire NAME NAME DELAY LOSS

Makes two TAP devices with these names, says so, and carries each frame from one
to the other until its standard input ends. Frames from the second one leave
DELAY seconds late, and a share LOSS of them never. The devices may be moved to
network namespaces. For `benchmarks.hosts`: not every kernel can delay frames.
"""

import collections
import contextlib
import fcntl
import os
import random
import select
import struct
import sys
import time

# From linux/if_tun.h: the request that names a device, frames with no header.
_TUNSETIFF = 0x400454CA
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000
# More than a frame of any device made here.
_MAX_BYTES = 65_536


def main(near: str, far: str, delay: str, loss: str) -> None:
  """Carries frames until the standard input ends."""
  devices = [_open_tap(name) for name in (near, far)]
  print('ready', flush=True)
  carry(*devices, sys.stdin.fileno(), float(delay), float(loss))


def carry(near: int, far: int, end: int, delay: float, loss: float) -> None:
  """Carries frames between two open devices.

  Args:
    near: The device whose frames leave at once.
    far: The device whose frames are delayed and lost.
    end: What ends this when it can be read or is closed.
    delay: In seconds.
    loss: The probability that a frame is lost.
  """
  generator = random.Random(0)
  waiting: collections.deque[tuple[float, bytes]] = collections.deque()
  poll = select.poll()
  for file in (near, far, end):
    poll.register(file, select.POLLIN)
  while True:
    now = time.monotonic()
    while waiting and waiting[0][0] <= now:
      _write(near, waiting.popleft()[1])
    # Rounded up: a frame that is due in a part of a millisecond waits for all.
    timeout = int(1000 * (waiting[0][0] - now)) + 1 if waiting else None
    for device, _ in poll.poll(timeout):
      if device == end:
        return
      # A device that is down has no frames, and takes none.
      with contextlib.suppress(OSError):
        frame = os.read(device, _MAX_BYTES)
        if device == near:
          _write(far, frame)
        elif generator.random() >= loss:
          waiting.append((time.monotonic() + delay, frame))


def _write(device: int, frame: bytes) -> None:
  with contextlib.suppress(OSError):
    os.write(device, frame)


def _open_tap(name: str) -> int:
  device = os.open('/dev/net/tun', os.O_RDWR | os.O_NONBLOCK)
  request = struct.pack('16sH22x', name.encode(), _IFF_TAP | _IFF_NO_PI)
  fcntl.ioctl(device, _TUNSETIFF, request)
  return device


if __name__ == '__main__':
  main(*sys.argv[1:])
