"""Programs: client stores, client sampling and training loops."""

from tff_clipping import tff_extra  # noqa: F401
