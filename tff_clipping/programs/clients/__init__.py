"""Client stores, and the samplers of cohorts."""
