"""Composable aggregation factories for clipping and differential privacy."""

from tff_clipping import tff_extra  # noqa: F401

__all__ = []
