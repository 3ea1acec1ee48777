"""What the tests of the analysis share."""

import pathlib

import pytest

from analysis import stats
from tests.analysis import run_folders


@pytest.fixture(scope='session')
def published():
  """The table of the published runs."""
  root = pathlib.Path(__file__).parents[2]
  return stats.read_results(root / 'results').table


@pytest.fixture
def read_runs(tmp_path):
  """A function that writes runs, and reads them.

  It takes the arguments of `run_folders.write_run` for each run, by its name.
  """

  def read(**runs):
    folders = [
      run_folders.write_run(tmp_path / name, **settings)
      for name, settings in runs.items()
    ]
    return stats.read_folders(folders)

  return read
