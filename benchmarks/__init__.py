"""Measures of speed and memory, against the bare arithmetic and stock TFF."""
