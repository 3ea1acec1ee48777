"""Whether process, noise and cohort are what a plan charges for."""
