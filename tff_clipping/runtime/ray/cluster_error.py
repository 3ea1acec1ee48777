"""The error of a cluster, which is caught where Ray is not installed too."""


class ClusterError(RuntimeError):
  """The cluster cannot run a round; the message says why, and what to do."""
