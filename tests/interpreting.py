"""A context whose rounds are run step by step, and not compiled."""

import functools

import tensorflow_federated as tff

from tff_clipping import runtime
from tff_clipping.runtime.interpreter import InterpretedComputation


class InterpretingContext(runtime.InProcessContext):
  """Runs rounds as `runtime` runs what it cannot compile.

  To compile a round takes longer than most tests of an aggregator do beside it.
  """

  def compile(self, comp):
    """Returns a round interpreted, and all else compiled."""
    parameter = comp.type_signature.parameter
    if parameter is None or not tff.types.contains(
      parameter, lambda t: isinstance(t, tff.FederatedType)
    ):
      return super().compile(comp)
    return _interpret(comp)


# As many as there are of one test.
@functools.lru_cache(maxsize=32)
def _interpret(comp):
  return InterpretedComputation(comp)
