"""A process whose clients keep something, as far as a store of it looks."""

import types

import numpy as np
import tensorflow_federated as tff


def process(client=None):
  """Returns what a store asks a process for: the type of its clients."""
  if client is None:
    client = [('client', np.str_), ('kept', [(np.float32, [2]), np.int64])]
  return types.SimpleNamespace(
    next=types.SimpleNamespace(
      type_signature=tff.FunctionType(
        tff.StructType(
          [
            (None, tff.FederatedType(np.int32, tff.SERVER)),
            (None, tff.FederatedType(tff.StructType(client), tff.CLIENTS)),
          ]
        ),
        tff.FederatedType(np.int32, tff.SERVER),
      )
    )
  )
