"""Runs as data frames, from their folders or the published files."""
