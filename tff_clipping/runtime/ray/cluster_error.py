"""The error of every part of the runtime on a cluster; needs no Ray."""


class ClusterError(RuntimeError):
  """The cluster cannot run a round; the message says why, and what to do."""
