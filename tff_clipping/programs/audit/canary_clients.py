"""Canaries among the clients of a run: their ids, their cohorts, their data."""

import collections

import numpy as np
import tensorflow as tf

from tff_clipping.privacy.audit import Canaries
from tff_clipping.programs.clients.client_sampling import ClientSampler

_PREFIX = 'canary '


def canary_ids(canaries: Canaries) -> list[str]:
  """Returns the ids of all canaries, with those that are held out."""
  return [f'{_PREFIX}{i}' for i in range(canaries.num_canaries)]


class CanarySampler(ClientSampler):
  """The cohorts of a sampler, without the canaries that are held out.

  One sampler draws clients and canaries, so that an audit covers the sampler.
  Under add-or-remove-one, held-out canaries then leave the cohort; under
  replace-one they stay, and send the opposite of their direction.
  """

  leaves_out = True

  def __init__(self, sampler: ClientSampler, canaries: Canaries):
    """Initializes the sampler.

    Args:
      sampler: Draws from the clients and all of `canary_ids(canaries)`.
      canaries: The canaries.

    Raises:
      ValueError: If `sampler` does not draw from all canaries.
    """
    ids = canary_ids(canaries)
    if not set(ids) <= set(sampler.client_ids):
      raise ValueError(
        '`sampler` must draw from the clients and all canaries, found '
        f'{len(set(ids) & set(sampler.client_ids))} of {len(ids)} canaries.'
      )
    self.client_ids = sampler.client_ids
    self.charged_as = sampler.charged_as
    self._sampler = sampler
    self._absent = frozenset(
      i for i, mark in zip(ids, canaries.marks, strict=True) if mark == 0
    )

  @property
  def seed_digest(self) -> str | None:
    """That of the sampler; see `ClientSampler`."""
    return self._sampler.seed_digest

  def sample(self, round_num: int, draw: int = 0) -> list[str]:
    """Returns the cohort of a round; see `ClientSampler`."""
    cohort = self._sampler.sample(round_num, draw)
    return [i for i in cohort if i not in self._absent]


class CanaryClients:
  """A client store in which canaries are clients too.

  Each example has a mark beside it, as the model of
  `tff_clipping.learning.add_canaries` takes it. A canary has one example, of
  zeros.

  Attributes:
    client_ids: The clients' and the canaries' ids.
    element_spec: The specification of an example and its mark.
  """

  def __init__(self, client_store, canaries: Canaries):
    """Adds canaries to a `ClientStore`, or to what has its attributes.

    Raises:
      ValueError: If a client has the id of a canary.
    """
    ids = canary_ids(canaries)
    for client_id in client_store.client_ids:
      if client_id.startswith(_PREFIX):
        raise ValueError(
          f'`client_store` must have no id that begins with {_PREFIX!r}, found '
          f'{client_id!r}.'
        )
    self.client_ids = (*client_store.client_ids, *ids)
    self.element_spec = collections.OrderedDict(
      examples=client_store.element_spec, canary=tf.TensorSpec([], tf.int32)
    )
    self._client_store = client_store
    self._marks = canaries.marks.astype(np.int32)

  def read_client(
    self, client_id: tf.Tensor
  ) -> collections.OrderedDict[str, tf.Tensor]:
    """Returns all examples and marks; see `ClientStore.read_client`."""
    is_canary = tf.strings.regex_full_match(client_id, f'{_PREFIX}.*')

    def read_canary():
      number = tf.strings.to_number(
        tf.strings.substr(client_id, len(_PREFIX), -1), tf.int32
      )
      examples = tf.nest.map_structure(
        lambda spec: tf.zeros([1, *spec.shape], spec.dtype),
        self._client_store.element_spec,
      )
      mark = tf.gather(tf.constant(self._marks), [number])
      return collections.OrderedDict(examples=examples, canary=mark)

    def read_client():
      examples = self._client_store.read_client(client_id)
      num_examples = tf.shape(tf.nest.flatten(examples)[0])[:1]
      return collections.OrderedDict(
        examples=examples, canary=tf.zeros(num_examples, tf.int32)
      )

    return tf.cond(is_canary, read_canary, read_client)
