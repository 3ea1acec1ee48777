"""FedAvg with model clipping, the weaker of the paper's two clips."""

from collections.abc import Sequence

import tensorflow as tf
import tensorflow_federated as tff

from tff_clipping.aggregators import factories, l2_clip
from tff_clipping.learning import fed_avg_round, keras_classes, steps
from tff_clipping.learning.fed_avg_round import Sender
from tff_clipping.learning.local_work import LocalWork
from tff_clipping.learning.steps import LocalStep, Sgd
from tff_clipping.learning.untrained_variables import ModelFn


@keras_classes.kept
def build_model_clipping_fed_avg(
  model_fn: ModelFn,
  *,
  clipping_norm: float,
  local_steps: int,
  batch_size: int,
  client_learning_rate: float,
  local_step: LocalStep = Sgd(),
  server_learning_rate: float | None = None,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  model_aggregator: tff.aggregators.UnweightedAggregationFactory | None = None,
  client_store=None,
  seed: int = 0,
  measure_updates: bool = False,
) -> tff.learning.templates.LearningProcess:
  """Builds FedAvg whose clients clip the model that they send.

      x_i^{t,q+1} = x_i^{t,q} - eta_l g_i^{t,q},   q = 0, ..., Q-1
      x^{t+1} = x^t + eta_g (1/P sum_i clip(x_i^{t,Q}, c) - x^t)

  The model itself is clipped, not the update. So for eta_g = 1 no global model
  is longer than c, and by Claim 2.1 it may never reach the optimum, whatever Q
  and eta_l are. With eta_g = 2 a model far longer than c becomes about its
  negative in each round. Use it to compare with difference clipping,
  `build_fed_avg` with `clipped_mean_factory`, which is better.

  A client sends clip(x_i^{t,Q}, c) - x^t: the server knows x^t, so it learns
  neither more nor less, and an empty cohort changes nothing. A model that is
  not finite is sent as zeros, as by every clip of this package. A client
  without examples sends clip(x^t, c).

  With noise (Wei et al. 2020), clip(x_i^{t,Q}, c) itself is sent, and

      x^{t+1} = x^t + eta_g (1/P (sum_i clip(x_i^{t,Q}, c) + noise) - x^t).

  Sensitivity: each summand has a norm of at most c. So replacing a client
  moves the sum by at most 2 c, and adding or removing one by c, whatever x^t
  is. A sum of the differences would not do: x^t has the noise of all earlier
  rounds and no bound, and removing a client moves this sum by up to
  c + ||x^t||. Take cohorts of exactly P clients, a plan's 'fixed_size' or
  'none': with n clients the model itself would be multiplied by n / P.

  Source: Sec. 2.1, "Model clipping", and the proof of Claim 2.1.

  Args:
    model_fn: See `build_fed_avg`, as for all arguments but `clipping_norm`.
    clipping_norm: c, the bound on the L2 norm of the whole model; so in
      general far larger than the bound on an update.
    local_steps: Q, the number of local steps of a client in a round.
    batch_size: The number of examples in each local step.
    client_learning_rate: eta_l, the local step size.
    local_step: Finds the direction of each local step; no `KeepingStep`.
    server_learning_rate: eta_g, the server's step size.
    server_optimizer: Applies the mean in place of the plain step.
    model_aggregator: Takes the mean of clipped models with noise, such as
      `dp_mean_factory` with the same c. `None` is the mean without noise.
    client_store: Reads a client's examples by its id.
    seed: The seed of the clients' shuffling.
    measure_updates: As for `build_fed_avg`, of Delta x_i^t before clipping;
      `client_work` then holds `model_norm` too, the norms of x_i^{t,Q} (0 for
      one that is not finite), in the order of the cohort.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    TypeError: If an argument is of the wrong kind.
    ValueError: If a number is out of range, or arguments do not fit together,
      as for `build_fed_avg`.
  """
  clipping_norm = l2_clip.check_clipping_norm('clipping_norm', clipping_norm)
  steps.check_keeps_nothing('local_step', local_step)
  if model_aggregator is not None:
    factories.check_unweighted_factory('model_aggregator', model_aggregator)
  work = LocalWork(
    model_fn=model_fn,
    local_steps=local_steps,
    batch_size=batch_size,
    client_learning_rate=client_learning_rate,
    local_step=local_step,
    client_store=client_store,
    seed=seed,
  )
  return fed_avg_round.build_process(
    work,
    server_learning_rate=server_learning_rate,
    server_optimizer=server_optimizer,
    model_aggregator=model_aggregator,
    measure_updates=measure_updates,
    sender=_sender(clipping_norm, sends_model=model_aggregator is not None),
  )


def _sender(clipping_norm: float, *, sends_model: bool) -> Sender:
  """Returns what sends the clipped model, or that less the global one.

  Args:
    clipping_norm: c.
    sends_model: Whether the server subtracts the global model, not the client.
  """

  def send(update: Sequence[tf.Tensor], global_model: Sequence[tf.Tensor]):
    local_model = [x + d for x, d in zip(global_model, update, strict=True)]
    clipped = l2_clip.clip_by_l2_norm(local_model, clipping_norm)
    sent = clipped.value
    if not sends_model:
      sent = _subtract(sent, global_model)
    return sent, [clipped.norm]

  return Sender(
    send,
    measurement_names=('model_norm',),
    receive=_subtract if sends_model else None,
  )


def _subtract(model, global_model):
  """Returns a model, less the global one."""
  return [y - x for y, x in zip(model, global_model, strict=True)]
