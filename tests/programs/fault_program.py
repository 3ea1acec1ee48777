"""A program that is killed where a test says so, many times over.

Importing TensorFlow takes longer than the runs of these tests. So one process
imports it and then forks, before TensorFlow has started any thread, a process
for each run: a real one, which really gets SIGKILL. It takes one JSON object a
line from its standard input, and answers with the exit status of the run.
"""

import collections
import hashlib
import json
import os
import pathlib
import shutil
import signal
import sys
import threading
import traceback

import numpy as np
import tensorflow_federated as tff
import tree

from tff_clipping import privacy, programs, runtime, storage_errors

IDS = tuple(str(i) for i in range(8))


def main() -> None:
  for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
      run = json.loads(line)
      try:
        _run(run)
        os._exit(0)
      except storage_errors.StorageError as e:
        _Log(run['log']).write('storage error', str(e))
        os._exit(5)
      except BaseException:
        traceback.print_exc()
        os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(json.dumps(status), flush=True)


def plan() -> privacy.PrivacyPlan:
  """Returns the plan of all runs."""
  return privacy.PrivacyPlan.from_noise_multiplier(
    num_clients=8,
    clients_per_round=4,
    num_rounds=1000,
    noise_multiplier=1.0,
    target_delta=1e-3,
  )


def _run(run: dict) -> None:
  """Runs the real program and ledger around a process of a few additions.

  Args:
    run: `folder`; `num_rounds`; `log`, a file for what happened; and where to
      kill: `kill_at`, the number of a step, or `kill_after`, in seconds.
  """
  log = _Log(run['log'])
  steps = _Steps(run.get('kill_at'))
  folder = pathlib.Path(run['folder'])
  folder.mkdir(exist_ok=True)
  runtime.set_default_context()
  if 'kill_at' in run:
    # Every change of the file system that the program makes.
    for module, name in (
      (os, 'fsync'),
      (os, 'replace'),
      (os, 'rename'),
      (os, 'unlink'),
      (shutil, 'rmtree'),
      (pathlib.Path, 'unlink'),
      (privacy.PrivacyLedger, 'charge'),
    ):
      setattr(module, name, steps.count(getattr(module, name)))
  _log_releases(log)
  process = _Process()
  with storage_errors.writing('The ledger'):
    ledger = privacy.PrivacyLedger(folder / 'ledger.jsonl', plan())
  with ledger:
    states = programs.ClientStates(folder / 'states', process, IDS)
    program = programs.TrainingProgram(
      process=process,
      client_value=float,
      client_states=states,
      sampler=programs.build_private_sampler(plan(), IDS, seed=1),
      num_rounds=run['num_rounds'],
      evaluate=lambda w: dict(test_accuracy=0.5, test_loss=1.0),
      checkpoints=programs.Checkpoints(folder / 'checkpoints'),
      watchers=[programs.MetricsFiles(folder / 'metrics.csv')],
      ledger=ledger,
    )
    if 'kill_after' in run:
      threading.Timer(run['kill_after'], _kill).start()
    result = program.run()
  kept = [states.read(each, result.round_num + 1) for each in IDS]
  log.write('end', result.round_num, _digest([result.state, kept]), steps.taken)


_CLIENT = tff.to_type(
  collections.OrderedDict(client=np.float32, kept=[np.float32])
)
_STATE = tff.to_type(
  collections.OrderedDict(
    weights=tff.learning.models.ModelWeights(
      [tff.TensorType(np.float32, [3])], []
    ),
    place=np.int32,
  )
)


class _Process:
  """Adds the clients' sum and noise with a fixed key, without TensorFlow.

  Each client keeps how much it has sent, and that is in what it sends.
  """

  state_type = tff.FederatedType(_STATE, tff.SERVER)

  def __init__(self):
    self.next = _Next()

  def initialize(self):
    return _state_of(np.zeros(3, np.float32), 0)

  def get_model_weights(self, state):
    return state['weights']


class _Next:
  type_signature = tff.FunctionType(
    tff.StructType(
      [
        (None, tff.FederatedType(_STATE, tff.SERVER)),
        (None, tff.FederatedType(_CLIENT, tff.CLIENTS)),
      ]
    ),
    tff.FederatedType(_STATE, tff.SERVER),
  )

  def __call__(self, state, clients):
    sent = [each['client'] + 0.1 * each['kept'][0] for each in clients]
    kept = [each['client'] + each['kept'][0] for each in clients]
    place = int(state['place'])
    noise = np.random.default_rng([9, place]).normal(size=3)
    value = state['weights'].trainable[0] * 0.9 + sum(sent) + noise
    return tff.learning.templates.LearningProcessOutput(
      _state_of(np.float32(value), place + 1),
      collections.OrderedDict(
        client_work=collections.OrderedDict(kept=[np.float32(kept)])
      ),
    )


def _state_of(value, place):
  return collections.OrderedDict(
    weights=tff.learning.models.ModelWeights([value], []),
    place=np.int32(place),
  )


class _Log:
  """Lines that are in the file when `write` returns."""

  def __init__(self, path: str):
    self._file = open(path, 'ab', buffering=0)

  def write(self, *values) -> None:
    self._file.write(json.dumps(values).encode() + b'\n')


class _Steps:
  """Counts steps, and kills the process in place of one of them."""

  def __init__(self, kill_at: int | None):
    self.taken = 0
    self._kill_at = kill_at

  def count(self, function):
    def counted(*args, **kwargs):
      self.taken += 1
      if self.taken == self._kill_at:
        _kill()
      return function(*args, **kwargs)

    return counted


def _log_releases(log: _Log) -> None:
  """Writes down each row of metrics that is released."""
  record = programs.MetricsFiles.record

  def logged(self, done):
    if done.round_num > 0:
      log.write('release', done.round_num)
    record(self, done)

  programs.MetricsFiles.record = logged


def _digest(values) -> str:
  digest = hashlib.sha256()
  for leaf in tree.flatten(values):
    digest.update(np.asarray(leaf).tobytes())
  return digest.hexdigest()


def _kill() -> None:
  os.kill(os.getpid(), signal.SIGKILL)


if __name__ == '__main__':
  main()
