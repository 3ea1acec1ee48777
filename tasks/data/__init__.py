"""Data sets, partitions over clients, and what a run knows of its data."""
