"""Runs the notebooks for the site, and keeps what they show.

Command: `make docs`. An error in a cell is an error.
"""

import pathlib
import sys

import nbclient
import nbformat

_NOTEBOOKS = pathlib.Path(__file__).parent.parent / 'notebooks'


def run_notebooks(output: pathlib.Path) -> None:
  """Writes each notebook with its outputs.

  Args:
    output: The folder; made if it is not there.
  """
  output.mkdir(parents=True, exist_ok=True)
  for path in sorted(_NOTEBOOKS.glob('*.ipynb')):
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
      notebook,
      timeout=600,
      kernel_name='python3',
      # What a loop prints is one output.
      coalesce_streams=True,
      resources={'metadata': {'path': str(_NOTEBOOKS)}},
    ).execute()
    nbformat.write(notebook, output / path.name)


if __name__ == '__main__':
  run_notebooks(pathlib.Path(sys.argv[1]))
