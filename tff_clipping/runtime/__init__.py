"""Execution contexts: where and how TFF computations run."""

from tff_clipping import tff_extra  # noqa: F401
from tff_clipping.runtime.in_process import (
  ClientError,
  InProcessContext,
  set_default_context,
)
from tff_clipping.runtime.map_reduce import UnsupportedComputationError

__all__ = [
  'ClientError',
  'InProcessContext',
  'UnsupportedComputationError',
  'set_default_context',
]
