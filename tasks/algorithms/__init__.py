"""What a run is asked to do, and what makes its algorithm."""
