"""A Ray for one program on this machine, which ends when that program does.

  python tff_clipping/runtime/ray/local_head.py NUM_CPUS

Prints its address, and ends with the standard input, so also when the program
is killed. A process of its own, because Ray forks when it starts, which may
hang in a process that has the threads of TensorFlow. Ray is on the loopback
interface alone: whoever reaches its ports can run any code.
"""

import logging
import os
import shutil
import signal
import sys
import tempfile
import warnings

_LOOPBACK = '127.0.0.1'


def main(num_cpus: int) -> None:
  """Runs until the standard input ends."""
  # The program decides when to end.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  os.environ['RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER'] = '0'
  import ray

  # Ray's own folder is left alone: it says which cluster 'auto' is. In /tmp,
  # because the paths of its sockets must be short.
  folder = tempfile.mkdtemp(prefix='ray-', dir='/tmp')
  try:
    warnings.simplefilter('ignore')
    info = ray.init(
      address='local',
      num_cpus=num_cpus,
      include_dashboard=False,
      log_to_driver=False,
      logging_level=logging.CRITICAL,
      _node_ip_address=_LOOPBACK,
      _temp_dir=folder,
    )
    print(info.address_info['gcs_address'], flush=True)
    sys.stdin.read()
  finally:
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == '__main__':
  main(int(sys.argv[1]))
