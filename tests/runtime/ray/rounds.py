"""Rounds that take their time, to be disturbed.

  python -m tests.runtime.ray.rounds FOLDER

runs such rounds on a Ray of its own, until it is ended; prints a line for each.
"""

import contextlib
import pathlib
import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests import computations
from tff_clipping import runtime

# Their sum depends on the order in which they are added up.
FLOATS = [np.float32(x) for x in np.random.default_rng(0).normal(size=16) * 1e3]


def build_slow_sum(folder: pathlib.Path, seconds: float):
  """Returns a sum whose clients take their time, and leave a file each."""

  @tff.tensorflow.computation(np.float32)
  def work(x):
    name = tf.strings.join([str(folder), '/', tf.strings.as_string(x)])
    start = tf.timestamp()
    with tf.control_dependencies([tf.io.write_file(name, '')]):
      end = tf.while_loop(
        lambda now: now < start + seconds, lambda now: tf.timestamp(), [start]
      )[0]
    return x + 0 * tf.cast(end - start, tf.float32)

  return computations.sum_of(work)


@contextlib.contextmanager
def when_clients_work(
  folder: pathlib.Path, function: Callable[[], object]
) -> Iterator[None]:
  """Calls a function once four clients have left their file, in the body."""
  for path in folder.iterdir():
    path.unlink()
  is_over = threading.Event()

  def wait():
    while len(list(folder.iterdir())) < 4:
      if is_over.wait(0.01):
        return
    function()

  thread = threading.Thread(target=wait)
  thread.start()
  try:
    yield
  finally:
    is_over.set()
    thread.join()


def main(folder: str) -> None:
  """Runs the rounds."""
  comp = build_slow_sum(pathlib.Path(folder), seconds=0.2)
  with runtime.set_ray_context(num_workers=1):
    while True:
      print(comp(FLOATS), flush=True)


if __name__ == '__main__':
  main(*sys.argv[1:])
