#!/usr/bin/env bash
# Prints a Python that TensorFlow Federated has a release for, or says how to
# get one. PYTHON_FOR_VENV=/path/to/python overrides the search.
set -eu

works() {
  "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 11))' \
    >/dev/null 2>&1
}

candidates=${PYTHON_FOR_VENV:-python3.11 python3.10 python3 python}
found=
for candidate in $candidates; do
  if command -v "$candidate" >/dev/null && works "$candidate"; then
    command -v "$candidate"
    exit 0
  fi
  if version=$("$candidate" --version 2>/dev/null); then
    found+="${found:+, }$candidate ($version)"
  fi
done

cat >&2 <<EOF
Error: Python 3.10 or 3.11 with venv is needed, found ${found:-no command $candidates}.
TensorFlow Federated 0.87, its newest release, has no build for Python 3.12 or newer.
Get one with 'apt-get install python3.11 python3.11-venv' where the distribution has it,
or with 'uv python install 3.11' or 'pyenv install 3.11', and set PYTHON_FOR_VENV to its path.
(The budget calculator and the theory run on Python 3.10 to 3.13: 'pip install .'.)
EOF
exit 1
