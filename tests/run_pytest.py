"""Runs the files that it is given with pytest: the main of every `py_test`."""

import sys

import pytest

if __name__ == '__main__':
  sys.exit(pytest.main(sys.argv[1:]))
