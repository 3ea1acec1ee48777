"""Rounds on the machines of a Ray cluster.

Only this file and `set_context` can be imported without Ray.
"""


class ClusterError(RuntimeError):
  """The cluster cannot run a round; the message says why, and what to do."""
