"""Devices that come when they like, at most once in so many rounds.

The server draws nobody. It takes the devices that wait, turns back those that
came too soon, and remembers who took part, also when it is started again. Noise
that is correlated between rounds needs no more of the cohorts.
"""

from collections.abc import Callable, Sequence
import hashlib
import json
import os
import pathlib
import secrets
import tempfile

import numpy as np
from tff_clipping import aggregators, privacy, programs, runtime
import tensorflow as tf
import tensorflow_federated as tff

_IDS = tuple(f'device {i}' for i in range(40))


class ArrivingDevices(programs.ClientSampler):
  """Takes the devices that wait, and writes each cohort before its round."""

  def __init__(
    self,
    plan: privacy.CorrelatedNoisePlan,
    client_ids: Sequence[str],
    path: pathlib.Path,
    waiting: Callable[[], Sequence[str]],
  ):
    """Takes a plan of `min_separation`; `waiting` tells who is ready, in order.

    A run that goes on needs the file `path` of the cohorts.
    """
    super().__init__(client_ids, seed=0)  # Nothing is drawn.
    self.charged_as = plan.sampler_parameters
    self._plan, self._path, self._waiting = plan, path, waiting
    if not _cut_to_whole_lines(path):
      self._write({'source': secrets.token_hex(16)})
    first, *self._cohorts = map(json.loads, _cut_to_whole_lines(path))
    self._source = first['source']

  @property
  def digest(self) -> str:
    """Stands for this file of cohorts: another one is refused by a ledger."""
    return hashlib.sha256(self._source.encode()).hexdigest()

  seed_digest = digest  # No two sources of cohorts share it.

  def sample(self, round_num: int, draw: int = 0) -> list[str]:
    """Returns who takes part; see `ClientSampler`."""
    if draw or round_num > len(self._cohorts) + 1:
      raise ValueError(
        f'`round_num` must be at most {len(self._cohorts) + 1}, the next round '
        f'of {self._path}, and `draw` 0, found {round_num} and {draw}.'
      )
    if round_num > len(self._cohorts):
      cohort = self._admit()
      self._write(cohort)
      self._cohorts.append(cohort)
    return list(self._cohorts[round_num - 1])

  def _admit(self) -> list[str]:
    """Those who wait, but who came in the last b - 1 rounds; at most P."""
    first = max(0, len(self._cohorts) - self._plan.min_separation + 1)
    too_soon = {d for cohort in self._cohorts[first:] for d in cohort}
    allowed = set(self.client_ids) - too_soon
    ready = dict.fromkeys(d for d in self._waiting() if d in allowed)
    return list(ready)[: self._plan.clients_per_round]

  def _write(self, line) -> None:
    with self._path.open('a') as file:
      file.write(json.dumps(line) + '\n')
      file.flush()
      os.fsync(file.fileno())


def _cut_to_whole_lines(path: pathlib.Path) -> list[str]:
  """Returns the lines; one that a crash cut short is of no round, and goes."""
  if not path.exists():
    return []
  content = path.read_bytes()
  whole = content[: content.rfind(b'\n') + 1]
  os.truncate(path, len(whole))
  return whole.decode().splitlines()


def _model_fn() -> tff.learning.models.VariableModel:
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))]),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=(tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])),
  )


def _device_data(device: str) -> tf.data.Dataset:
  rng = np.random.default_rng(_IDS.index(device))
  x = rng.normal(size=(20, 2)).astype(np.float32)
  y = x @ np.array([[1.0], [-2.0]], np.float32)
  return tf.data.Dataset.from_tensor_slices((x, y)).batch(5)


def main() -> None:
  runtime.set_default_context()
  plan = privacy.CorrelatedNoisePlan.from_target_epsilon(
    num_clients=40,
    clients_per_round=4,
    min_separation=10,
    strategy=privacy.blt_strategy(
      num_rounds=20, participation=privacy.Participation(min_separation=10)
    ),
    # So large an epsilon protects nobody; 40 devices cannot do better.
    target_epsilon=1000.0,
    target_delta=1e-3,
  )
  process = tff.learning.algorithms.build_unweighted_fed_avg(
    _model_fn,
    tff.learning.optimizers.build_sgdm(0.2),
    model_aggregator=aggregators.correlated_dp_mean_factory(
      clipping_norm=1.0,
      strategy=plan.strategy,
      **plan.aggregator_parameters._asdict(),
    ),
  )
  rng = np.random.default_rng(0)
  with tempfile.TemporaryDirectory() as folder:
    run = pathlib.Path(folder)
    # Who is charging, and on Wi-Fi: here, some of all by chance.
    sampler = ArrivingDevices(
      plan, _IDS, run / 'cohorts.jsonl', lambda: list(rng.permutation(_IDS)[:8])
    )
    with privacy.PrivacyLedger(run / 'ledger.jsonl', plan) as ledger:
      outcomes = programs.Checkpoints(run / 'outcomes')
      private = programs.PrivateProcess(
        process, sampler, ledger, outcomes, client_value=_device_data
      )
      done, state = private.resume()
      for round_num in range(done + 1, plan.num_rounds + 1):
        state = private.next(state, round_num).state
      print(f'{ledger.num_releases} releases, epsilon {ledger.epsilon:.0f}')
  kernel = private.get_model_weights(state).trainable[0]
  print('weights', np.round(np.ravel(kernel)))


if __name__ == '__main__':
  main()
