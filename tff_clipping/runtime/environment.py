"""What the bits of a round depend on, apart from its values.

Sums of floats are rounded in the order in which they are added, and that
depends on the processor, the libraries and their settings. A round that is
computed again in the same environment has the same bits. In another environment
it may have other bits, and whether it does depends on its values. The bits
depend on the computation as well: another model, or a model that draws random
numbers, gives the same to clients without examples and something else to all
others.
"""

import contextlib
import contextvars
import functools
import hashlib
import os
import pathlib
import platform
import secrets
from collections.abc import Collection, Iterator
from typing import Protocol

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tff_clipping

# How the names of the environment variables begin that can change bits.
_SETTINGS = (
  # TensorFlow and its compiler; oneDNN, its matrix products.
  *('TF_', 'XLA_', 'ONEDNN_', 'DNNL_'),
  # Other libraries of matrix products, and NumPy.
  *('MKL_', 'OPENBLAS_', 'GOTO_', 'BLIS_', 'NPY_'),
  # OpenMP, of LLVM, Intel and GNU.
  *('OMP_', 'KMP_', 'GOMP_'),
  # The C library picks its exp and log by the processor, as it is told to.
  'GLIBC_TUNABLES',
  # Libraries in the place of others.
  *('LD_PRELOAD', 'LD_LIBRARY_PATH', 'LD_AUDIT', 'LD_HWCAP_MASK'),
)
_NO_SETTINGS = (
  # What is written to the log.
  'TF_CPP_',
  # Ray sets it in its workers. TensorFlow's threads are not those of OpenMP,
  # and how many a client has is a part of the context.
  'OMP_NUM_THREADS',
)
# Lines of /proc/cpuinfo that say which instructions a processor has, and the
# size of its cache, by which products are cut into blocks.
_PROCESSOR_LINES = (
  'CPU implementer',
  'CPU part',
  'Features',
  'cache size',
  'cpu family',
  'flags',
  'model',
)

# What stands for a round, and for one whose clients have data sets.
_ROUND, DATA_SETS = 'round', 'data sets'

# What our contexts have computed since a recording began.
_recording: contextvars.ContextVar[set[str | None] | None] = (
  contextvars.ContextVar('recording', default=None)
)


class Computation(Protocol):
  """What a context has compiled, as far as it is described here."""

  @property
  def fingerprint(self) -> str | None:
    """A text that others do not have; `None` if the result may vary."""

  @property
  def is_round(self) -> bool:
    """Whether clients take part in it."""

  @property
  def takes_data_sets(self) -> bool:
    """Whether they have data sets."""


@contextlib.contextmanager
def recording() -> Iterator[set[str | None]]:
  """Gives what our contexts compute in the body, for `describe`.

  In this thread: what another one has them compute is not of the body.
  """
  computed: set[str | None] = set()
  token = _recording.set(computed)
  try:
    yield computed
  finally:
    _recording.reset(token)


def record(computation: Computation, context: str) -> None:
  """Tells a recording, if there is one, what is computed.

  Args:
    computation: What a context has compiled.
    context: What the bits depend on in the context.
  """
  computed = _recording.get()
  if computed is None:
    return
  fingerprint = computation.fingerprint
  computed.add(fingerprint and f'{fingerprint} {context}')
  if computation.is_round:
    computed.add(_ROUND)
  if computation.takes_data_sets:
    computed.add(DATA_SETS)


def describe(
  computed: Collection[str | None], *, data_sets_repeat: bool = False
) -> str:
  """Returns the environment of what was computed by TFF, in a line.

  Args:
    computed: What `recording` gave.
    data_sets_repeat: Whether a `tf.data.Dataset` of a client is taken to have
      the same elements in the same order again.

  Returns:
    A text that is the same for all that has the same bits, if it has the same
    values. Where nobody knows that, no two texts are the same: if something
    draws random numbers, a GPU computes, workers differ, clients have data
    sets, or a round was computed in no context of `tff_clipping.runtime`.
  """
  repeats = (
    _ROUND in computed
    and None not in computed
    and (data_sets_repeat or DATA_SETS not in computed)
    and not _num_gpus()
  )
  computation = (
    _digest(sorted(map(str, computed))) if repeats else secrets.token_hex(8)
  )
  of_versions = (f'{name} {version}' for name, version in versions().items())
  return ', '.join([of_process(), *of_versions, f'computation {computation}'])


def versions() -> dict[str, str]:
  """Returns the versions of what the results of a round depend on."""
  return dict(
    tff_clipping=tff_clipping.__version__,
    tensorflow_federated=tff.__version__,
    tensorflow=tf.__version__,
    numpy=np.__version__,
    python=platform.python_version(),
  )


def machine() -> str:
  """Returns the kind of machine that this is."""
  num_cpus = len(os.sched_getaffinity(0))
  return f'{_processor()}, CPUs {num_cpus}, GPUs {_num_gpus()}'


def of_process() -> str:
  """Returns the machine, and how the libraries are set in this process.

  Settings are environment variables, of which an empty one is none, and the
  sources and the compiler that TensorFlow was built from.
  """
  settings = sorted(
    (name, value)
    for name, value in os.environ.items()
    if value
    and name.startswith(_SETTINGS)
    and not name.startswith(_NO_SETTINGS)
  )
  build = tf.version.GIT_VERSION, tf.version.COMPILER_VERSION
  return f'{machine()}, settings {_digest([*settings, build])}'


def describe_shards(num_shards: int, threads_per_client: int) -> str:
  """Returns how a context of ours adds up clients."""
  return f'shards {num_shards}, threads for each client {threads_per_client}'


def describe_workers(workers: Collection[str]) -> str:
  """Returns where the clients are computed, if that is elsewhere.

  Args:
    workers: What `of_process` returns in each of the workers.

  Returns:
    What follows the text of a context in one process: nothing if the workers
    are as this process is. Where they differ, nobody knows which of them a
    client comes to: no two such texts are the same. Nor are they of GPUs.
  """
  kinds = set(workers)
  if len(kinds) > 1 or any('GPUs 0' not in kind for kind in kinds):
    return f', clients on {len(kinds)} kinds of workers {secrets.token_hex(8)}'
  if kinds <= {of_process()}:
    return ''
  return f', clients on {kinds.pop()}'


@functools.cache
def _processor() -> str:
  """The kind of processor, and the library of its functions."""
  try:
    lines = pathlib.Path('/proc/cpuinfo').read_text().splitlines()
  except OSError:
    lines = []
  found = {
    (name.strip(), value.strip())
    for name, _, value in (line.partition(':') for line in lines)
  }
  names = sorted(value for name, value in found if name == 'model name')
  kind = sorted(each for each in found if each[0] in _PROCESSOR_LINES)
  return ' '.join(
    [
      platform.machine(),
      *(names or [platform.processor()]),
      _digest(kind),
      *platform.libc_ver(),
    ]
  )


def _num_gpus() -> int:
  return len(tf.config.list_physical_devices('GPU'))


def _digest(values: Collection) -> str:
  """Returns a short text that other values do not have."""
  return hashlib.sha256(repr(values).encode()).hexdigest()[:16]
