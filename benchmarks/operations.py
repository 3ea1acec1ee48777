"""Shows which operations of TensorFlow a local step's time goes to.

  python -m benchmarks.operations mobilenet_v2

For one thread, as each client has. The times are TensorFlow's own, of every
operation, and sum up to a little more than a step takes without them.
"""

import collections
import os
import statistics
import sys
import time

# For the convolutions, whose threads are the process's and not the session's.
os.environ['TF_NUM_INTRAOP_THREADS'] = '1'

# ruff: noqa: E402
import tensorflow as tf

from benchmarks import local_step, machine
from benchmarks.workload import WORKLOADS

_WARM_UP_STEPS = 3
_STEPS = 10
_LEAST_SHARE = 0.01


def main(name: str) -> None:
  """Prints the shares of the operations of a workload's step."""
  workload = WORKLOADS[name]
  with tf.Graph().as_default() as graph:
    step = local_step.build(workload)
    initialize = tf.compat.v1.global_variables_initializer()
  config = tf.compat.v1.ConfigProto(
    intra_op_parallelism_threads=1,
    inter_op_parallelism_threads=1,
    use_per_session_threads=True,
  )
  with tf.compat.v1.Session(graph=graph, config=config) as session:
    session.run(initialize)
    seconds = _time_steps(session, step)
    by_operation = _time_operations(session, step)
  print(machine.headline(machine.describe()))
  print(
    f'{name}: a step of {workload.batch_size} images takes '
    f'{statistics.median(seconds) * 1e3:.1f} ms'
  )
  total = by_operation.total()
  for operation, time_taken in by_operation.most_common():
    if time_taken >= _LEAST_SHARE * total:
      print(f'{time_taken / total:6.1%}  {operation}')


def _time_steps(session, step) -> list[float]:
  """Returns the seconds of steps."""
  seconds = []
  for _ in range(_WARM_UP_STEPS + _STEPS):
    start = time.monotonic()
    session.run(step)
    seconds.append(time.monotonic() - start)
  return seconds[_WARM_UP_STEPS:]


def _time_operations(session, step) -> collections.Counter[str]:
  """Returns the microseconds of each kind of operation, of some steps."""
  found = collections.Counter()
  options = tf.compat.v1.RunOptions(
    trace_level=tf.compat.v1.RunOptions.FULL_TRACE
  )
  for _ in range(_STEPS):
    metadata = tf.compat.v1.RunMetadata()
    session.run(step, options=options, run_metadata=metadata)
    for device in metadata.step_stats.dev_stats:
      for node in device.node_stats:
        # 'name = operation(inputs)'
        operation = node.timeline_label.split(' = ')[-1].split('(')[0]
        found[operation] += node.all_end_rel_micros
  return found


if __name__ == '__main__':
  main(*sys.argv[1:])
