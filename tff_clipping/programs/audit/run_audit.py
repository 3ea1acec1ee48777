"""The audit of a run: how much its releases show of the canaries.

An audited run is not a private release: some of its clients are canaries, and
its folder says which.
"""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_clipping import atomic_files, storage_errors
from tff_clipping.privacy import PrivacyPlan
from tff_clipping.privacy.audit import (
  AuditResult,
  Canaries,
  audit_plan,
  score_releases,
)
from tff_clipping.privacy.audit.result import check_canaries
from tff_clipping.programs.audit.canary_clients import CanarySampler, canary_ids
from tff_clipping.programs.clients.client_sampling import build_private_sampler
from tff_clipping.programs.training import watchers

# The measurement of `add_canary_products`.
_PRODUCTS = 'canary_products'


class RunAudit(watchers.RoundWatcher):
  """Keeps the products of releases with the canaries' directions, and judges.

  In a training program it is a watcher. The process's model aggregator comes
  from `add_canary_products`; the caller records the last model.

  Each round has a file of its own, `release_0000t.npy`, with one number for
  each canary. A round that is repeated after a crash overwrites its file.
  `model_0000t.npy` has the model, before the first round and after the last.
  A method that cannot write its file raises `StorageError`.

  Attributes:
    canaries: The canaries.
  """

  sees_clients = True

  def __init__(
    self,
    folder: str | os.PathLike,
    *,
    plan: PrivacyPlan,
    canaries: Canaries,
    release_unit: float,
  ):
    """Initializes the audit.

    Args:
      folder: Where the files are; made when the first is written.
      plan: The claim, for the population with the canaries:
        `add_canaries_to_plan` of the run's plan.
      canaries: The canaries, of `plan.relation`.
      release_unit: What one clipped client adds to a release: c / P for a mean
        of updates clipped to c.

    Raises:
      ValueError: If the canaries are not of the plan's relation, all of them
        are in, or all are held out.
    """
    check_canaries(plan, canaries)
    self._folder = pathlib.Path(folder)
    self._plan = plan
    self.canaries = canaries
    self._release_unit = release_unit

  def build_sampler(
    self, client_ids: Sequence[str], *, seed: int
  ) -> CanarySampler:
    """Returns the plan's own sampler, for these clients and the canaries.

    Raises:
      ValueError: If clients and canaries are not as many as the plan is for.
    """
    population = [*client_ids, *canary_ids(self.canaries)]
    return CanarySampler(
      build_private_sampler(self._plan, population, seed=seed), self.canaries
    )

  def measure(self, done: watchers.Round) -> Mapping[str, float]:
    """Raises a ValueError if the process does not measure the products."""
    if done.work and _find_products(done) is None:
      raise ValueError(
        '`model_aggregator` must come from `add_canary_products` for '
        f'`RunAudit`, found one that does not measure {_PRODUCTS}.'
      )
    return {}

  def record(self, done: watchers.Round) -> None:
    """Keeps the initial model or a release; see the base class."""
    if done.round_num == 0:
      self.record_model(0, done.model.trainable)
      return
    products = _find_products(done)
    if products is not None:
      self.record_release(done.round_num, np.asarray(products))

  def record_release(self, round_num: int, products: np.ndarray) -> None:
    """Keeps the release of a round.

    Args:
      round_num: The number of the round, from 1.
      products: Those of the release with all directions, shape [m]: the
        measurement `canary_products` of the aggregator.
    """
    self._write('release', round_num, products)

  def record_model(self, round_num: int, weights: Sequence[np.ndarray]) -> None:
    """Keeps the trainable weights of round 0, or of the last round."""
    self._write('model', round_num, self.canaries.project(list(weights)))

  def write(self, *, confidence: float = 0.95) -> AuditResult:
    """Writes `audit.json` from what was kept, and returns it.

    The attacks are `all_releases`, `successive_releases` and, if the models of
    round 0 and of another round were kept, `final_model`. For `confidence` see
    `audit_plan`.

    Raises:
      ValueError: If no release was kept, or one between two others is missing.
    """
    releases = self._read('release')
    if list(releases) != list(range(1, len(releases) + 1)) or not releases:
      raise ValueError(
        'The releases of rounds 1, 2, ... must have been kept, found those of '
        f'{list(releases)}.'
      )
    scores = dict(
      score_releases(
        np.stack(list(releases.values())) / self._release_unit,
        sampling_prob=self._plan.sampling_prob,
        noise_multiplier=self._plan.noise_multiplier,
        relation=self.canaries.relation,
      )
    )
    models = list(self._read('model').values())
    if len(models) > 1:
      scores['final_model'] = models[-1] - models[0]
    plan = dataclasses.replace(
      self._plan, num_rounds=len(releases), target_epsilon=None
    )
    result = audit_plan(plan, self.canaries, scores, confidence=confidence)
    with (
      storage_errors.writing('The audit'),
      atomic_files.replacing(self._folder / 'audit.json') as new,
    ):
      new.write_text(result.to_json())
    return result

  def _write(self, kind: str, round_num: int, values: np.ndarray) -> None:
    path = self._folder / f'{kind}_{round_num:05d}.npy'
    with storage_errors.writing(f'The audit file {path.name}'):
      self._folder.mkdir(parents=True, exist_ok=True)
      with atomic_files.replacing(path) as new, open(new, 'wb') as file:
        np.save(file, np.asarray(values, np.float64))

  def _read(self, kind: str) -> dict[int, np.ndarray]:
    """Returns what was kept of a kind, by round, in order."""
    rounds = {
      int(path.stem.removeprefix(f'{kind}_')): np.load(path)
      for path in self._folder.glob(f'{kind}_*.npy')
    }
    return dict(sorted(rounds.items()))


def _find_products(done: watchers.Round) -> Any:
  """Returns the products of a round; `None` if there are none."""
  products = done.released.get(f'aggregator/{_PRODUCTS}')
  if products is None and done.work:
    # Without a record they are not released, but an audit sees the clients.
    measured = done.work.measured.get('aggregator')
    if isinstance(measured, Mapping):
      products = measured.get(_PRODUCTS)
  return products
