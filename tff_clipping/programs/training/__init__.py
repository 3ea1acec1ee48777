"""Rounds, releases, checkpoints, interruption and files of metrics."""
