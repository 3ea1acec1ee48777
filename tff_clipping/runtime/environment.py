"""The machine and the versions on which a run was computed, for its folder."""

import functools
import os
import pathlib
import platform

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tff_clipping


def versions() -> dict[str, str]:
  """Returns the versions of the packages that decide a round's results."""
  return dict(
    tff_clipping=tff_clipping.__version__,
    tensorflow_federated=tff.__version__,
    tensorflow=tf.__version__,
    numpy=np.__version__,
    python=platform.python_version(),
  )


def machine() -> str:
  """Returns the kind of this machine."""
  num_cpus = len(os.sched_getaffinity(0))
  num_gpus = len(tf.config.list_physical_devices('GPU'))
  return f'{_processor()}, CPUs {num_cpus}, GPUs {num_gpus}'


@functools.cache
def _processor() -> str:
  """The kind of processor, by name where the system knows one."""
  try:
    lines = pathlib.Path('/proc/cpuinfo').read_text().splitlines()
  except OSError:
    lines = []
  names = {
    value.strip()
    for name, _, value in (line.partition(':') for line in lines)
    if name.strip() == 'model name'
  }
  return ' '.join([platform.machine(), *(sorted(names) or [''])]).strip()
