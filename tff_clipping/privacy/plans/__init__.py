"""Cohorts, noise and promise as one object, with its text and its JSON."""
