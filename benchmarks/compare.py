"""Prints how long a round takes, as ratios to the bare limit and to stock TFF.

  python -m benchmarks.compare --output=bench.json

Measures one after the other on an otherwise idle machine, twice, and takes the
medians. Asserts nothing.
"""

import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

from absl import app, flags

from benchmarks import bare
from benchmarks.workload import WORKLOADS

_OUTPUT = flags.DEFINE_string('output', 'bench.json', 'Where the figures go.')
_WORKLOADS = flags.DEFINE_list('workloads', ['mlp'], 'mlp and alexnet.')
_STOCK = flags.DEFINE_bool('stock', True, 'Measure stock TFF too.')
_REPEATS = 2


def main(argv: list[str]) -> None:
  """Measures, prints and saves."""
  del argv
  results = {}
  for name in _WORKLOADS.value:
    seconds = {
      'bare': [],
      'ours': [],
      **({'stock': []} if _STOCK.value else {}),
    }
    for _ in range(_REPEATS):
      for mode, found in seconds.items():
        found.extend(
          list(bare.round_seconds(WORKLOADS[name]))
          if mode == 'bare'
          else _federated(mode, name)
        )
    medians = {
      mode: statistics.median(found) for mode, found in seconds.items()
    }
    results[name] = dict(median_seconds=medians, seconds=seconds)
    print(f'{name}: {WORKLOADS[name]}')
    for mode, median in medians.items():
      print(
        f'  {mode:<6} {median:7.3f} s a round, '
        f'{median / medians["bare"]:5.2f} of bare'
        + (
          f', {median / medians["stock"]:5.2f} of stock'
          if 'stock' in medians
          else ''
        )
      )
  pathlib.Path(_OUTPUT.value).write_text(
    json.dumps(dict(machine=_machine(), results=results), indent=2)
  )
  print(f'Saved {_OUTPUT.value}')


def _federated(mode: str, name: str) -> list[float]:
  # To a file: the worker of TFF's native context keeps its output open.
  with tempfile.TemporaryFile('w+') as output:
    subprocess.run(
      [sys.executable, '-m', 'benchmarks.federated', mode, name],
      stdout=output,
      stderr=subprocess.DEVNULL,
      check=True,
    )
    output.seek(0)
    return json.loads(output.read().splitlines()[-1])


def _machine() -> dict[str, str | int]:
  model = next(
    (
      line.split(':', 1)[1].strip()
      for line in pathlib.Path('/proc/cpuinfo').read_text().splitlines()
      if line.startswith('model name')
    ),
    platform.machine(),
  )
  return dict(
    cpu=model,
    cores=len(os.sched_getaffinity(0)),
    system=platform.platform(),
    python=platform.python_version(),
    date=datetime.date.today().isoformat(),
  )


if __name__ == '__main__':
  app.run(main)
