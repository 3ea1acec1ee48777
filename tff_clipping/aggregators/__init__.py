"""Composable aggregation factories for clipping and differential privacy.

A factory checks its arguments when it is built. An argument of the wrong type
raises a TypeError, an argument out of range a ValueError. An inner factory must
be unweighted unless the docstring says otherwise.
"""

from tff_clipping import tff_extra  # noqa: F401
from tff_clipping.aggregators.adaptive_clipping import adaptive_dp_mean_factory
from tff_clipping.aggregators.canary_products import add_canary_products
from tff_clipping.aggregators.clipping import (
  combined_clipping_norm,
  difference_clipping_factory,
  per_layer_clipping_factory,
)
from tff_clipping.aggregators.distributed_gaussian import (
  distributed_gaussian_mean_factory,
)
from tff_clipping.aggregators.local_gaussian_noise import (
  local_gaussian_noise_factory,
)
from tff_clipping.aggregators.means import (
  clipped_mean_factory,
  fixed_denominator_mean_factory,
  realized_mean_factory,
)
from tff_clipping.aggregators.private_mean import (
  correlated_dp_mean_factory,
  dp_mean_factory,
  local_gaussian_mean_factory,
)
from tff_clipping.aggregators.secure_sum import secure_sum_factory
from tff_clipping.aggregators.server_noise import (
  correlated_noise_factory,
  gaussian_noise_factory,
)
from tff_clipping.aggregators.transformed import transformed_factory
from tff_clipping.aggregators.update_norms import (
  SIMULATION_ONLY_MEASUREMENTS,
  add_update_norm_measurements,
)

__all__ = [
  'SIMULATION_ONLY_MEASUREMENTS',
  'adaptive_dp_mean_factory',
  'add_canary_products',
  'add_update_norm_measurements',
  'clipped_mean_factory',
  'combined_clipping_norm',
  'correlated_dp_mean_factory',
  'correlated_noise_factory',
  'difference_clipping_factory',
  'distributed_gaussian_mean_factory',
  'dp_mean_factory',
  'fixed_denominator_mean_factory',
  'gaussian_noise_factory',
  'local_gaussian_mean_factory',
  'local_gaussian_noise_factory',
  'per_layer_clipping_factory',
  'realized_mean_factory',
  'secure_sum_factory',
  'transformed_factory',
]
