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
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tasks.algorithms import experiment
from tasks.running import run_folder, runner
from tasks.running.execution import Execution
from tests.learning import linear_models
from tff_clipping import (
  aggregators,
  learning,
  privacy,
  runtime,
  storage_errors,
)
from tff_clipping.aggregators.parts import gaussian_draws
from tff_clipping.programs.clients.client_sampling import build_private_sampler
from tff_clipping.programs.clients.client_states import ClientStates
from tff_clipping.programs.clients.client_store import write_client_store
from tff_clipping.programs.training import (
  metrics_files,
  private_rounds,
  training_program,
)
from tff_clipping.programs.training.checkpoints import Checkpoints
from tff_clipping.programs.training.update_records import UpdateRecords


def main() -> None:
  for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
      run = json.loads(line)
      try:
        _RUNS[run.pop('kind')](run)
        os._exit(0)
      except storage_errors.StorageError as e:
        _Log(run['log']).write('storage error', str(e))
        os._exit(5)
      except BaseException:
        traceback.print_exc()
        os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(json.dumps(status), flush=True)


def run_small(run: dict) -> None:
  """Runs the real program and ledger around a process of a few additions.

  Args:
    run: `folder`; `num_rounds`; `keeps`, whether clients keep something;
      `log`, a file for what happened; and where to kill: `kill_at`, the number
      of a step, or `kill_after`, in seconds.
  """
  log = _Log(run['log'])
  steps = _Steps(run.get('kill_at'))
  folder = pathlib.Path(run['folder'])
  folder.mkdir(exist_ok=True)
  runtime.set_default_context()
  plan = privacy.PrivacyPlan.from_noise_multiplier(
    num_clients=8,
    clients_per_round=4,
    num_rounds=1000,
    noise_multiplier=1.0,
    target_delta=1e-3,
  )
  ids = [str(i) for i in range(8)]
  settings = dict(process=build_noisy_sum_process(), client_value=float)
  if run.get('keeps'):
    process = build_scaffold_process(folder.parent / 'clients', ids)
    settings = dict(
      process=process,
      client_states=ClientStates(folder / 'states', process, ids),
    )
  if 'kill_at' in run or run.get('keeps'):
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
  with storage_errors.writing('The ledger'):
    ledger = privacy.PrivacyLedger(folder / 'ledger.jsonl', plan)
  with ledger:
    program = training_program.TrainingProgram(
      **settings,
      sampler=build_private_sampler(plan, ids, seed=1),
      num_rounds=run['num_rounds'],
      evaluate=lambda w: dict(test_accuracy=0.5, test_loss=1.0),
      checkpoints=Checkpoints(folder / 'checkpoints'),
      watchers=[
        metrics_files.MetricsFiles(
          folder / 'metrics.csv', tensorboard_dir=folder / 'tb'
        )
      ],
      ledger=ledger,
    )
    if 'kill_after' in run:
      threading.Timer(run['kill_after'], _kill).start()
    result = program.run()
  log.write(
    'end',
    result.round_num,
    _digest(result.state),
    steps.taken,
    *_kept_digests(settings, result.round_num, ids),
  )


def run_experiment(run: dict) -> None:
  """Runs a whole experiment, killed at a stage of a round.

  Args:
    run: `folder`; `cache_dir`; `config`, the settings; `noise_key`, which takes
      the place of the secret one; `log`; `stage` and `round_num`, where to
      kill.
  """
  log = _Log(run['log'])
  gaussian_draws.fresh_key = lambda: tf.constant(run['noise_key'], tf.int64)
  if run.get('stage') is not None:
    _kill_at_stage(run['stage'], run['round_num'])
  _log_releases(log)
  # JSON has no tuples.
  config = run['config'] | {
    'update_rounds': tuple(run['config']['update_rounds'])
  }
  result = runner.run(
    experiment.ExperimentConfig(**config),
    run_folder.RunFolder(run['folder']),
    Execution(cache_dir=run['cache_dir']),
  )
  log.write('end', result.round_num, _digest(result.state), result.reason.value)


def build_noisy_sum_process() -> tff.learning.templates.LearningProcess:
  """Returns a process that adds the clients' sum and noise with a fixed key."""
  weights_type = tff.learning.models.ModelWeights(
    [tff.TensorType(np.float32, [3])], []
  )
  state_type = tff.to_type(
    collections.OrderedDict(
      weights=weights_type, clipping_norm=(), privacy_noise=np.int32
    )
  )

  @tff.tensorflow.computation
  def initial():
    return collections.OrderedDict(
      weights=tff.learning.models.ModelWeights([tf.zeros([3])], []),
      clipping_norm=(),
      privacy_noise=tf.constant(0),
    )

  @tff.tensorflow.computation(state_type, np.float32)
  def add(state, total):
    noise = tf.random.stateless_normal([3], [9, state['privacy_noise']])
    value = state['weights'].trainable[0] * 0.9 + total + noise
    return collections.OrderedDict(
      weights=tff.learning.models.ModelWeights([value], []),
      clipping_norm=(),
      privacy_noise=state['privacy_noise'] + 1,
    )

  @tff.federated_computation
  def initialize():
    return tff.federated_eval(initial, tff.SERVER)

  @tff.federated_computation(
    tff.FederatedType(state_type, tff.SERVER),
    tff.FederatedType(np.float32, tff.CLIENTS),
  )
  def next_fn(state, values):
    total = tff.federated_sum(values)
    return tff.learning.templates.LearningProcessOutput(
      tff.federated_map(add, (state, total)), total
    )

  @tff.tensorflow.computation(state_type)
  def get_model_weights(state):
    return state['weights']

  @tff.tensorflow.computation(state_type, state_type['weights'])
  def set_model_weights(state, weights):
    return collections.OrderedDict(
      weights=weights,
      clipping_norm=(),
      privacy_noise=state['privacy_noise'],
    )

  return tff.learning.templates.LearningProcess(
    initialize, next_fn, get_model_weights, set_model_weights
  )


def build_scaffold_process(
  folder: pathlib.Path, ids: list[str]
) -> tff.learning.templates.LearningProcess:
  """Returns SCAFFOLD of a tiny model with clip and noise of a given key."""
  rng = np.random.default_rng(5)
  store = write_client_store(
    folder,
    'tiny',
    {
      'x': rng.normal(size=[40, 3]).astype(np.float32),
      'y': rng.normal(size=[40, 1]).astype(np.float32),
    },
    np.split(np.arange(40), 8),
    ids,
  )
  return learning.build_fed_avg(
    linear_models.model_fn,
    local_steps=2,
    batch_size=4,
    client_learning_rate=0.1,
    local_step=learning.steps.Scaffold(0.5, clipping_norm=0.2),
    model_aggregator=aggregators.dp_mean_factory(
      clipping_norm=0.2,
      noise_multiplier=1.0,
      clients_per_round=4,
      noise_key=(1, 2),
    ),
    client_store=store,
  )


def _kept_digests(settings: dict, round_num: int, ids: list[str]) -> list[str]:
  """Returns the digest of what all clients keep at last, if they do."""
  states = settings.get('client_states')
  if states is None:
    return []
  return [_digest([states.read(each, round_num + 1) for each in ids])]


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
  """Writes down each release that is made, and each state that is saved."""
  release = metrics_files.CSVRowsReleaseManager.release
  save = Checkpoints.save

  async def logged_release(self, value, key):
    if key > 0:
      log.write('release', int(key))
    await release(self, value, key)

  def logged_save(self, state, round_num, **kwargs):
    log.write('save', round_num, _digest(state))
    return save(self, state, round_num, **kwargs)

  metrics_files.CSVRowsReleaseManager.release = logged_release
  Checkpoints.save = logged_save


def _kill_at_stage(stage: str, round_num: int) -> None:
  """Makes the process kill itself at a stage of a round."""
  tensorboard = metrics_files.TensorBoardRowsReleaseManager
  owner, name, before = {
    'before the outcome': (Checkpoints, 'save', True),
    'in the outcome': (os, 'rename', True),
    'before the charge': (privacy.PrivacyLedger, 'charge', True),
    'after the charge': (privacy.PrivacyLedger, 'charge', False),
    'after the round': (UpdateRecords, 'record', True),
    'after the updates': (UpdateRecords, 'record', False),
    'after the CSV file': (tensorboard, 'release', True),
    'after all metrics': (tensorboard, 'release', False),
  }[stage]
  function = getattr(owner, name)
  reached = []
  run_round = private_rounds.run_private_round

  def note(*args, round_num, **kwargs):
    reached.append(round_num)
    return run_round(*args, round_num=round_num, **kwargs)

  def is_there() -> bool:
    return bool(reached) and reached[-1] == round_num

  if name == 'release':

    async def killing(*args):
      if before and is_there():
        _kill()
      await function(*args)
      if is_there():
        _kill()

  else:

    def killing(*args, **kwargs):
      # In the outcome: not where the seal of the ledger is renamed.
      is_here = name != 'rename' or str(args[1]).endswith('.state')
      if before and is_there() and is_here:
        _kill()
      result = function(*args, **kwargs)
      if is_there() and is_here:
        _kill()
      return result

  private_rounds.run_private_round = note
  setattr(owner, name, killing)


def _digest(state) -> str:
  digest = hashlib.sha256()
  for leaf in tree.flatten(state):
    digest.update(np.asarray(leaf).tobytes())
  return digest.hexdigest()


def _kill() -> None:
  os.kill(os.getpid(), signal.SIGKILL)


_RUNS = {'small': run_small, 'experiment': run_experiment}


if __name__ == '__main__':
  main()
