"""FedPD, the primal-dual way to local steps, as a local step of your own.

  python -m examples.fed_pd

What it shows: how to write a step whose clients keep something from round to
round, a `KeepingStep`; and what FedPD is good for. Three clients have the
losses of Table 1, (x − 4)²/2, (2x − 1)²/2 and (6x + 1)²/2, whose sum is least
at 0. With ten local steps FedAvg rests at 0.366, and FedPD rests at 0.

docs/recipes.md has programs that store what clients keep, and private runs.
"""

import collections
import dataclasses
import math

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping import learning, runtime
from tff_clipping.learning import steps

# Of each client the feature and the target, (a x − b)²/2.
_CLIENTS = ((1.0, 4.0), (2.0, 1.0), (6.0, -1.0))


@dataclasses.dataclass(frozen=True)
class FedPD(steps.KeepingStep):
  """FedPD: the direction is g + λ_i + (x_i^{t,q} − x^t)/η.

  A client keeps the dual vector λ_i. Its local steps go down its part of the
  augmented Lagrangian, from x^t to x_i:

      λ_i⁺ = λ_i + (x_i − x^t)/η,   and x_i + η λ_i⁺ − x^t is sent.

  Departs from its source: the local steps start at the global model, and not at
  the client's last one; the clients of a cohort take part, in place of all or
  none; and what is sent may be clipped.

  Attributes:
    penalty: η, the inverse weight of the penalty, positive and finite.
    clipping_norm: That of the aggregator; `math.inf` if it does not clip.

  Source: Zhang, Hong, Dhople, Yin, Liu 2020 (arXiv 2005.11418), Algorithm 1
    with Oracle I.
  """

  penalty: float
  clipping_norm: float = math.inf

  def direction(self, context, memory):
    """Returns the gradient, with the dual vector and the penalty."""
    direction = [
      g + dual + (x - x0) / tf.constant(self.penalty, g.dtype)
      for g, dual, x, x0 in zip(
        context.gradient(),
        context.kept.own,
        context.model,
        context.start,
        strict=True,
      )
    ]
    return direction, memory

  def send(self, update, kept):
    """Returns x_i + η λ_i⁺ − x^t."""
    return [
      u + tf.constant(self.penalty, u.dtype) * dual
      for u, dual in zip(update, self._next_dual(update, kept), strict=True)
    ]

  def keep(self, update, sent, kept, *, way):
    """Returns λ_i⁺."""
    del sent, way
    return self._next_dual(update, kept)

  def _next_dual(self, update, kept):
    return [
      dual + u / tf.constant(self.penalty, u.dtype)
      for dual, u in zip(kept.own, update, strict=True)
    ]


def _model_fn():
  inputs = tf.keras.Input((1,))
  outputs = tf.keras.layers.Dense(1, use_bias=False)(inputs)
  return tff.learning.models.from_keras_model(
    tf.keras.Model(inputs, outputs),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=(tf.TensorSpec([None, 1]), tf.TensorSpec([None, 1])),
  )


def find_rest(step, num_rounds=100):
  """Returns where the model rests, with all clients in each round."""
  process = learning.build_fed_avg(
    _model_fn,
    local_steps=10,
    batch_size=1,
    # The loss of Keras is twice that of Table 1: η_l is 1/72 there.
    client_learning_rate=1 / 144,
    local_step=step,
  )
  clients = [tf.data.Dataset.from_tensors(([a], [b])) for a, b in _CLIENTS]
  kept = np.zeros([len(clients), 1, 1], np.float32)
  state = process.initialize()
  for _ in range(num_rounds):
    cohort = clients
    if isinstance(step, steps.KeepingStep):
      cohort = [
        collections.OrderedDict(client=client, kept=[own])
        for client, own in zip(clients, kept, strict=True)
      ]
    output = process.next(state, cohort)
    state = output.state
    (kept,) = output.metrics['client_work'].get('kept', [kept])
  return float(process.get_model_weights(state).trainable[0][0, 0])


def main():
  """Prints where FedAvg and FedPD rest."""
  runtime.set_default_context()
  for name, step in (('FedAvg', steps.Sgd()), ('FedPD', FedPD(1 / 20))):
    print(f'{name} rests at {find_rest(step):.3f}')


if __name__ == '__main__':
  main()
