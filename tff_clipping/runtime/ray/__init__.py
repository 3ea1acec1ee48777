"""Rounds on the machines of a Ray cluster.

Only `set_context` can be imported without Ray.
"""
