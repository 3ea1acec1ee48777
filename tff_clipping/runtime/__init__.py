"""Execution contexts: where and how TFF computations run."""

from tff_clipping import tff_extra  # noqa: F401
from tff_clipping.runtime.in_process import (
  ClientError,
  InProcessContext,
  set_default_context,
)
from tff_clipping.runtime.ray import ClusterError
from tff_clipping.runtime.ray.set_context import set_ray_context

__all__ = [
  'ClientError',
  'ClusterError',
  'InProcessContext',
  'set_default_context',
  'set_ray_context',
]
