"""Computations of TFF for tests, and what runs them for `tff.program`."""

import asyncio

import tensorflow_federated as tff


def sum_of(work: tff.Computation) -> tff.Computation:
  """Returns the sum of what each client makes of its value.

  Args:
    work: What a client does, a computation of TensorFlow.
  """
  clients = tff.FederatedType(work.type_signature.parameter, tff.CLIENTS)
  return tff.federated_computation(
    lambda values: tff.federated_sum(tff.federated_map(work, values)), clients
  )


class AsyncContext(tff.framework.AsyncContext):
  """Runs computations in this process, for `tff.program`."""

  def __init__(self, context: tff.framework.SyncContext):
    self._context = context

  async def invoke(self, comp, arg):
    return await asyncio.to_thread(self._context.invoke, comp, arg)
