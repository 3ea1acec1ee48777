"""What the clipping norm and the noise of a plan are in a run, in words."""

from tasks.algorithms.experiment import ExperimentConfig


def describe(config: ExperimentConfig) -> str:
  """Returns what the 'clipping norm' and the noise of a plan are in a run.

  Args:
    config: The experiment, a private one.
  """
  if config.aggregator is not None:
    return (
      f'The plan holds only if {config.aggregator} clips each update and adds '
      "the plan's noise. This was not checked."
    )
  clipping = {
    'fixed': f'The clipping norm is {config.clipping_norm}.',
    'adaptive': (
      'The clipping norm is adaptive. The noise multiplier is that of the sum '
      'and of the bits that set the norm together: the sum alone has more.'
    ),
    'per_layer': (
      f'The clipping norm of all tensors together is {config.clipping_norm}; '
      'all have the same share of its square.'
    ),
    'smooth': (
      f'Each update is divided by its norm plus {config.smoothing}: the '
      'clipping norm is 1.'
    ),
  }[config.clipping]
  aggregation = {
    'plain': '',
    'secure': ' The sum is a secure one, in fixed point.',
    'distributed': (
      ' The noise is discrete Gaussian, in shares of the clients, on a secure '
      'sum of integers.'
    ),
  }[config.aggregation]
  return clipping + aggregation
