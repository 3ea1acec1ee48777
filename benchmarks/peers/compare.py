"""Compares with other frameworks on the same work; `make bench-peers`.

  python -m benchmarks.peers.compare --output=bench_peers.json

PyTorch by hand, pfl, Flower and FedJAX, each in an environment of its own under
.peers/, made at the first run from the versions in benchmarks/peers/*.txt. All
start from the same weights and train on the same digits, with Q exact full
batches for each client; that the accuracy is the same after the same rounds
shows that the work is. A peer that cannot be installed or run is reported, and
the others go on.

PyTorch by hand runs all four models, the frameworks the perceptron.
"""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
from typing import Any

from absl import app, flags

from benchmarks import machine, processes, summaries
from benchmarks.workload import NUM_WARM_UP_ROUNDS, WORKLOADS

_OUTPUT = flags.DEFINE_string('output', 'bench_peers.json', 'For the figures.')
_PEERS = flags.DEFINE_list(
  'peers', ['torch', 'pfl', 'flower', 'fedjax'], 'Which frameworks.'
)
_WORKLOADS = flags.DEFINE_list(
  'workloads',
  ['mlp', 'alexnet', 'mobilenet_v2', 'resnet18'],
  'Which models; the frameworks run only mlp.',
)
_STOCK = flags.DEFINE_bool('stock', True, 'Measure stock TFF too.')

_ROOT = pathlib.Path(__file__).parent.parent.parent
_ENVIRONMENTS = _ROOT / '.peers'
_REQUIREMENTS = pathlib.Path(__file__).parent

# The first three are ours, in the environment of this program.
_OURS = ('bare', 'ours', 'ours_fed_avg')
_COMMANDS = {
  'torch': ['-m', 'benchmarks.peers.torch_by_hand'],
  'pfl': [
    *('-m', 'torch.distributed.run', '--standalone'),
    f'--nproc_per_node={len(os.sched_getaffinity(0))}',
    *('-m', 'benchmarks.peers.pfl_peer'),
  ],
  'flower': ['-m', 'benchmarks.peers.flower_peer'],
  'fedjax': ['-m', 'benchmarks.peers.fedjax_peer'],
}
_TIMEOUT_SECONDS = 300
_ENVIRONMENT = {
  'PYTHONPATH': str(_ROOT),
  # Nothing is reported to anybody.
  'FLWR_TELEMETRY_ENABLED': '0',
  'RAY_USAGE_STATS_ENABLED': '0',
}


def main(argv: list[str]) -> None:
  """Installs, measures, prints and saves."""
  del argv
  description = machine.describe()
  print(machine.headline(description), flush=True)
  unusable = {}
  for peer in _PEERS.value:
    reason = _install(peer)
    if reason:
      unusable[peer] = reason
      print(f'{peer} cannot be installed: {reason}', flush=True)
  results = dict(machine=description, unusable=unusable, workloads={})
  for name in _WORKLOADS.value:
    results['workloads'][name] = _measure(name, unusable)
    pathlib.Path(_OUTPUT.value).write_text(json.dumps(results, indent=2))
  print(f'\nSaved {_OUTPUT.value}')


def _measure(name: str, unusable: dict[str, str]) -> dict[str, Any]:
  """Runs a workload in every way, and prints a line on each."""
  print(f'\n{name}, {WORKLOADS[name]}')
  modes = list(_OURS)
  if _STOCK.value and name == 'mlp':
    modes.append('stock_fed_avg')
  for peer in _PEERS.value:
    if peer not in unusable and (name == 'mlp' or peer == 'torch'):
      modes.append(peer)
  results = {}
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / 'work.npz'
    _export(name, path)
    for mode in modes:
      try:
        results[mode] = _run(mode, name, path)
      except RuntimeError as e:
        results[mode] = dict(error=str(e).splitlines()[-1])
      print(
        summaries.peer_line(
          mode, results[mode], results['bare'].get('median_seconds')
        ),
        flush=True,
      )
  return results


def _run(mode: str, name: str, path: pathlib.Path) -> dict[str, Any]:
  if mode == 'bare':
    result = processes.run_python(['-m', 'benchmarks.bare', name])
  elif mode in _COMMANDS:
    result = processes.run_python(
      [*_COMMANDS[mode], str(path)],
      python=_python(mode),
      environment=_ENVIRONMENT,
      timeout_seconds=_TIMEOUT_SECONDS,
    )
    result['seconds'] = result['seconds'][NUM_WARM_UP_ROUNDS:]
  else:
    result = processes.run_python(['-m', 'benchmarks.federated', mode, name])
  return dict(result, median_seconds=statistics.median(result['seconds']))


def _export(name: str, path: pathlib.Path) -> None:
  """Writes the file of a workload, in a process of its own for its memory."""
  processes.run_python(['-m', 'benchmarks.peers.export', name, str(path)])


def _install(peer: str) -> str | None:
  """Makes the environment of a peer; returns why it cannot, if so."""
  requirements = _REQUIREMENTS / f'{peer}.txt'
  folder = _ENVIRONMENTS / peer
  installed = folder / 'installed.txt'
  if installed.exists() and installed.read_text() == requirements.read_text():
    return None
  print(f'Installing {folder.relative_to(_ROOT)} ...', flush=True)
  shutil.rmtree(folder, ignore_errors=True)
  for command in (
    [sys.executable, '-m', 'venv', os.fspath(folder)],
    [_python(peer), '-m', 'pip', 'install', '--quiet', '-r', str(requirements)],
  ):
    found = subprocess.run(command, capture_output=True, text=True)
    if found.returncode:
      errors = [
        line for line in found.stderr.splitlines() if line.startswith('ERROR')
      ]
      return errors[-1] if errors else found.stderr.strip()[-200:]
  installed.write_text(requirements.read_text())
  return None


def _python(peer: str) -> str:
  return os.fspath(_ENVIRONMENTS / peer / 'bin' / 'python')


if __name__ == '__main__':
  app.run(main)
