"""Composable aggregation factories for clipping and differential privacy."""

from tff_clipping import tff_extra  # noqa: F401, I001

from tff_clipping.aggregators.adaptive_clipping import (
  adaptive_dp_mean_factory as adaptive_dp_mean_factory,
)
from tff_clipping.aggregators.difference_clipping import (
  difference_clipping_factory as difference_clipping_factory,
)
from tff_clipping.aggregators.distributed_gaussian import (
  distributed_gaussian_mean_factory as distributed_gaussian_mean_factory,
)
from tff_clipping.aggregators.gaussian_noise import (
  gaussian_noise_factory as gaussian_noise_factory,
)
from tff_clipping.aggregators.local_gaussian_noise import (
  local_gaussian_noise_factory as local_gaussian_noise_factory,
)
from tff_clipping.aggregators.means import (
  clipped_mean_factory as clipped_mean_factory,
)
from tff_clipping.aggregators.means import dp_mean_factory as dp_mean_factory
from tff_clipping.aggregators.means import (
  fixed_denominator_mean_factory as fixed_denominator_mean_factory,
)
from tff_clipping.aggregators.per_layer_clipping import (
  combined_clipping_norm as combined_clipping_norm,
)
from tff_clipping.aggregators.per_layer_clipping import (
  per_layer_clipping_factory as per_layer_clipping_factory,
)
from tff_clipping.aggregators.secure_sum import (
  secure_sum_factory as secure_sum_factory,
)
from tff_clipping.aggregators.update_norms import (
  SIMULATION_ONLY_MEASUREMENTS as SIMULATION_ONLY_MEASUREMENTS,
)
from tff_clipping.aggregators.update_norms import (
  add_update_norm_measurements as add_update_norm_measurements,
)
