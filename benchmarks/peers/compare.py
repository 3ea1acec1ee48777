"""Compares with other frameworks on the same work; `make bench-peers`.

  python -m benchmarks.peers.compare --output=bench_peers.json

PyTorch by hand, pfl, Flower and FedJAX, each in an environment of its own under
.peers/, made at the first run from the versions in benchmarks/peers/*.txt. All
run the paper's round of the perceptron, from the same weights on the same
digits, with Q exact full batches for each client; that the accuracy is the same
after the same rounds shows that the work is. Their rounds run in turns:
`benchmarks.alternate`. A peer that cannot be installed or run is reported, and
the others go on. What is printed is Markdown, and says how busy other programs
kept the machine.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from absl import app, flags

from benchmarks import alternate, machine, processes, tables
from benchmarks.alternate import Side
from benchmarks.workload import NUM_LAST_ROUNDS, NUM_WARM_UP_ROUNDS, WORKLOADS

_OUTPUT = flags.DEFINE_string('output', 'bench_peers.json', 'For the figures.')
_PEERS = flags.DEFINE_list(
  'peers', ['torch', 'pfl', 'flower', 'fedjax'], 'Which frameworks.'
)
_STOCK = flags.DEFINE_bool('stock', True, 'Measure stock TFF too.')

_ROOT = pathlib.Path(__file__).parent.parent.parent
_ENVIRONMENTS = _ROOT / '.peers'
_REQUIREMENTS = pathlib.Path(__file__).parent

_MODEL = 'mlp'
# Ours, in the environment of this program.
_OURS = {
  'bare': ['-m', 'benchmarks.bare', _MODEL],
  'ours': ['-m', 'benchmarks.federated', 'ours', _MODEL],
  'ours_fed_avg': ['-m', 'benchmarks.federated', 'ours_fed_avg', _MODEL],
  'stock_fed_avg': ['-m', 'benchmarks.federated', 'stock_fed_avg', _MODEL],
}
# In an environment each; the file of the work is the last argument.
_PEER_COMMANDS = {
  'torch': ['-m', 'benchmarks.peers.torch_by_hand'],
  'pfl': [
    *('-m', 'torch.distributed.run', '--standalone'),
    f'--nproc_per_node={len(os.sched_getaffinity(0))}',
    *('-m', 'benchmarks.peers.pfl_peer'),
  ],
  'flower': ['-m', 'benchmarks.peers.flower_peer'],
  'fedjax': ['-m', 'benchmarks.peers.fedjax_peer'],
}
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
  unusable = {}
  for peer in _PEERS.value:
    reason = _install(peer)
    if reason:
      unusable[peer] = reason
      print(f'{peer} cannot be installed: {reason}', flush=True)
  print(machine.headline(description), end='\n\n')
  print(tables.time_heading('test accuracy'), flush=True)
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, 'work.npz')
    # In a process of its own for its memory.
    processes.run_python(['-m', 'benchmarks.peers.export', path])
    sides = _sides(path, unusable)
    found = alternate.compare(
      sides,
      num_rounds=WORKLOADS[_MODEL].num_rounds,
      num_warm_up_rounds=NUM_WARM_UP_ROUNDS,
      num_last_rounds=NUM_LAST_ROUNDS,
    )
  accuracies = {
    side: f'{result["accuracy"]:.1%}'
    for side, result in found.results.items()
    if result.get('accuracy') is not None
  }
  print('\n'.join(tables.time_rows(_MODEL, list(sides), found, accuracies)))
  print(f'\n{tables.busy_line(_MODEL, found)}')
  results = dict(
    machine=description, unusable=unusable, found=dataclasses.asdict(found)
  )
  pathlib.Path(_OUTPUT.value).write_text(json.dumps(results, indent=2))


def _sides(path: str, unusable: dict[str, str]) -> dict[str, Side]:
  """Returns the ways to run the work."""
  sides = {
    side: Side(command)
    for side, command in _OURS.items()
    if side != 'stock_fed_avg' or _STOCK.value
  }
  for peer in _PEERS.value:
    if peer not in unusable:
      sides[peer] = Side(
        [*_PEER_COMMANDS[peer], path], _python(peer), _ENVIRONMENT
      )
  return sides


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
