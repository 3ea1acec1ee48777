"""What decides about the last bits of a result, but for the computation.

Sums of floats are rounded in the order in which they are added, and that
depends on the processor, the libraries, and their settings. A round that is
computed again in the same environment has the same bits; in another one it
may have others, and whether it has depends on its values.
"""

import functools
import hashlib
import os
import pathlib
import platform
import secrets
from collections.abc import Collection

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tff_clipping

# What a library of TensorFlow is told by the environment of the process, but
# for what it writes to the log.
_SETTINGS = ('TF_', 'XLA_', 'ONEDNN_', 'DNNL_', 'CUDA_')
_OF_THE_LOG = 'TF_CPP_'
# Lines of /proc/cpuinfo that say which instructions a processor has.
_INSTRUCTIONS = (
  'CPU implementer',
  'CPU part',
  'Features',
  'cpu family',
  'flags',
  'model',
)


def describe() -> str:
  """Returns the environment in which TFF computes now.

  Of a context that is not ours, its threads are not known, nor its machines if
  there are others.
  """
  context = tff.framework.get_context_stack().current
  of_context = getattr(context, 'environment', type(context).__name__)
  of_versions = (f'{name} {version}' for name, version in versions().items())
  settings = sorted(
    (name, value)
    for name, value in os.environ.items()
    if name.startswith(_SETTINGS) and not name.startswith(_OF_THE_LOG)
  )
  return ', '.join(
    [machine(), *of_versions, f'settings {_digest(settings)}', of_context]
  )


def machine() -> str:
  """Returns the kind of machine that this is."""
  num_gpus = len(tf.config.list_physical_devices('GPU'))
  num_cpus = len(os.sched_getaffinity(0))
  return f'{processor()}, CPUs {num_cpus}, GPUs {num_gpus}'


def versions() -> dict[str, str]:
  """Returns the versions of what the results of a round depend on."""
  return dict(
    tff_clipping=tff_clipping.__version__,
    tensorflow_federated=tff.__version__,
    tensorflow=tf.__version__,
    numpy=np.__version__,
    python=platform.python_version(),
  )


@functools.cache
def processor() -> str:
  """Returns the kind of processor, and the library of its functions."""
  try:
    lines = pathlib.Path('/proc/cpuinfo').read_text().splitlines()
  except OSError:
    lines = []
  found = {
    (name.strip(), value.strip())
    for name, _, value in (line.partition(':') for line in lines)
  }
  names = sorted(value for name, value in found if name == 'model name')
  instructions = sorted(each for each in found if each[0] in _INSTRUCTIONS)
  return ' '.join(
    [
      platform.machine(),
      *(names or [platform.processor()]),
      _digest(instructions),
      *platform.libc_ver(),
    ]
  )


def describe_shards(num_shards: int, threads_per_client: int) -> str:
  """Returns how a context of ours adds up clients."""
  return f'shards {num_shards}, threads for each client {threads_per_client}'


def describe_workers(processors: Collection[str]) -> str:
  """Returns where the clients are computed, if that is elsewhere.

  Args:
    processors: Those of all workers, by `processor`.

  Returns:
    What follows the text of a context in one process: nothing if the workers
    have the processor that is here. Where they have several, nobody knows
    which of them a client comes to: no two such texts are the same.
  """
  kinds = set(processors)
  if kinds <= {processor()}:
    return ''
  if len(kinds) == 1:
    return f', clients on {kinds.pop()}'
  return f', clients on {len(kinds)} kinds of processors {secrets.token_hex(8)}'


def _digest(values: Collection) -> str:
  """Returns a short text that other values do not have."""
  return hashlib.sha256(repr(values).encode()).hexdigest()[:8]
