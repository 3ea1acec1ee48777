"""Imported first by every package that needs TensorFlow Federated.

The plain installation has the budget calculator and the theory, without
TensorFlow. An import of more than that, without TensorFlow Federated, ends here
with an error that says what to install.

TensorFlow prints dozens of lines about processors and graphics cards when it is
imported and when it first runs. This module turns them off, unless the user has
set a level: `TF_CPP_MIN_LOG_LEVEL=0` in the environment shows all. TensorFlow
reads the level once, when it is imported: import tff_clipping before it.
"""

import importlib.util
import os
import sys

if importlib.util.find_spec('tensorflow_federated') is None:
  _found = f'{sys.version_info.major}.{sys.version_info.minor}'
  _todo = (
    "run `uv pip install '.[tff]'` or `make setup` in a checkout of "
    'tff_clipping; plain pip cannot install it (docs/training.md).'
    if sys.version_info < (3, 12)
    else f'it has no release for Python {_found}: use Python 3.10 or 3.11.'
  )
  raise ImportError(
    'TensorFlow Federated 0.87 is not installed, which this part of '
    f'tff_clipping needs: {_todo}'
  )

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
