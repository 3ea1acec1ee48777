"""Runs the notebooks for the site, and keeps what they show.

Command: `make docs`. An error in a cell is an error, as is a notebook that
writes to stderr or shows no figure.
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
    _check_outputs(path.name, notebook)
    nbformat.write(notebook, output / path.name)


def _check_outputs(name: str, notebook: nbformat.NotebookNode) -> None:
  outputs = [o for cell in notebook.cells for o in cell.get('outputs', ())]
  errors = [o['text'] for o in outputs if o.get('name') == 'stderr']
  if errors:
    raise RuntimeError(f'{name} writes to stderr: {"".join(errors)}')
  if not any('image/png' in o.get('data', {}) for o in outputs):
    raise RuntimeError(f'{name} shows no figure.')


if __name__ == '__main__':
  run_notebooks(pathlib.Path(sys.argv[1]))
