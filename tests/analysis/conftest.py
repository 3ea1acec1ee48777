"""What the tests of the analysis share."""

import pytest

from analysis.runs import frame
from tests.analysis import run_folders


@pytest.fixture
def read_runs(tmp_path):
  """A function that writes runs, and returns their frames.

  It takes the arguments of `run_folders.write_run` for each run, by its name.
  """

  def read(**runs):
    folders = [
      run_folders.write_run(tmp_path / name, **settings)
      for name, settings in runs.items()
    ]
    return frame.read_frames(folders)

  return read
