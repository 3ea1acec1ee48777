"""Local steps: in which direction a client goes from batch to batch.

  process = learning.build_fed_avg(..., local_step=steps.Proximal(0.1))

What they are made of, and how to write another one, is in `LocalStep`.
"""

from tff_clipping.learning.steps.error_feedback import ErrorFeedback
from tff_clipping.learning.steps.fed_pd import FedPD
from tff_clipping.learning.steps.keeping_step import KeepingStep, Kept
from tff_clipping.learning.steps.local_step import LocalStep, StepContext
from tff_clipping.learning.steps.momentum import Momentum
from tff_clipping.learning.steps.proximal import Proximal
from tff_clipping.learning.steps.scaffold import Scaffold
from tff_clipping.learning.steps.scheduled import Scheduled
from tff_clipping.learning.steps.sgd import Sgd
from tff_clipping.learning.steps.sharpness_aware import SharpnessAware

__all__ = [
  'ErrorFeedback',
  'FedPD',
  'Kept',
  'KeepingStep',
  'LocalStep',
  'Momentum',
  'Proximal',
  'Scaffold',
  'Scheduled',
  'Sgd',
  'SharpnessAware',
  'StepContext',
]
