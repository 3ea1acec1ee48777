"""Writes the API reference: a page for each public module, from its docstrings.

Command: `make docs`. A warning of pdoc is an error.
"""

import pathlib
import sys
import warnings

import pdoc

from tff_clipping import (
  aggregators,
  learning,
  privacy,
  programs,
  runtime,
  theory,
)
from tff_clipping.privacy import audit, correlated_noise

_PUBLIC = (
  aggregators,
  learning,
  privacy,
  audit,
  correlated_noise,
  programs,
  runtime,
  theory,
)


def write_reference(output: pathlib.Path) -> None:
  """Writes the pages, `index.html` and the search.

  Args:
    output: The folder; made if it is not there.

  Raises:
    UserWarning: If a docstring or an annotation cannot be read.
  """
  # TFF's own context complains when this program ends.
  runtime.set_default_context()
  pdoc.render.configure(docformat='google', show_source=False)
  with warnings.catch_warnings():
    warnings.simplefilter('error', UserWarning)
    pdoc.pdoc(*(module.__name__ for module in _PUBLIC), output_directory=output)


if __name__ == '__main__':
  write_reference(pathlib.Path(sys.argv[1]))
