"""Canary clients, and the audit of a run."""
