"""What a run has spent, on disk before each release; several runs together."""
