"""Learning processes: what clients and server do in a round."""

from tff_clipping import tff_extra  # noqa: F401
from tff_clipping.learning.fed_avg import build_fed_avg
from tff_clipping.learning.model_clipping import build_model_clipping_fed_avg

__all__ = ['build_fed_avg', 'build_model_clipping_fed_avg']
