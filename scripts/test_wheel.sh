#!/usr/bin/env bash
# Installs the package by a plain `pip install`, with the newest versions that it
# allows, on the newest Python that is there, and runs the tests that need no
# TensorFlow. PYTHON_FOR_WHEEL=/path/to/python overrides the search.
set -euo pipefail
cd "$(dirname "$0")/.."
shopt -s nullglob

works() {
  "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] < (3, 12))' \
    >/dev/null 2>&1
}

pyenv=${PYENV_ROOT:-$HOME/.pyenv}/versions
candidates=${PYTHON_FOR_WHEEL:-python3.13 $pyenv/3.13*/bin/python python3.12 $pyenv/3.12*/bin/python}
for candidate in $candidates; do
  if works "$candidate"; then
    python=$candidate
    break
  fi
done
if [[ -z ${python:-} ]]; then
  echo "The wheel is not tested: no Python 3.12 or 3.13 with venv, looked for" $candidates.
  [[ -z ${PYTHON_FOR_WHEEL:-} ]]  # One that is named must be there.
  exit
fi

# A copy, so that the tests find the package where pip has put it.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -r docs pyproject.toml LICENSE README.md tests tff_clipping "$folder"
"$python" -m venv "$folder/venv"
cd "$folder"
venv/bin/pip install --quiet --disable-pip-version-check . pytest pytest-xdist hypothesis
rm -rf build tff_clipping
venv/bin/python -c 'import platform, dp_accounting, numpy, scipy
from importlib import metadata
print("The wheel on Python", platform.python_version(), *(
  f"{name} {metadata.version(name)}" for name in ("numpy", "scipy", "dp-accounting")))'
venv/bin/python -m pytest -q -n 2 -m 'not slow' tests/privacy tests/theory tests/last_bits_test.py
