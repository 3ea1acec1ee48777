"""Imported first by every package that needs TensorFlow Federated.

The plain installation holds the budget calculator and the theory, without
TensorFlow. Whoever imports more than that without TensorFlow Federated learns
here what to install, instead of meeting a bare `ModuleNotFoundError`.
"""

import importlib.util

if importlib.util.find_spec('tensorflow_federated') is None:
  raise ImportError(
    'TensorFlow Federated is not installed; this part of tff_clipping needs '
    "the extra `tff` (Python 3.10 or 3.11): pip install 'tff-clipping[tff]', "
    'or `make setup` in a checkout, which installs the tested versions.'
  )
