"""Rounds on the machines of a Ray cluster.

Only `set_context` and `cluster_error` can be imported without Ray.
"""
