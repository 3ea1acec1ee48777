"""Learning processes: what clients and server do in a round."""

from tff_clipping import tff_extra  # noqa: F401
from tff_clipping.learning import steps
from tff_clipping.learning.canary_model import (
  add_canaries,
  canary_dataset,
  mark_dataset,
)
from tff_clipping.learning.compute_dtype import with_compute_dtype
from tff_clipping.learning.fed_avg import build_fed_avg
from tff_clipping.learning.model_clipping import build_model_clipping_fed_avg

__all__ = [
  'add_canaries',
  'build_fed_avg',
  'build_model_clipping_fed_avg',
  'canary_dataset',
  'mark_dataset',
  'steps',
  'with_compute_dtype',
]
