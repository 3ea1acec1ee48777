"""Compares with other frameworks on the same work; `make bench-peers`.

  python -m benchmarks.peers.compare --peers=torch,fedjax

PyTorch by hand, pfl, Flower and FedJAX, each in an environment of its own under
.peers/, which make installs from the versions in benchmarks/peers/*.txt. All
run the paper's round of the perceptron, from the same weights on the same
digits, with Q exact full batches for each client; that the accuracy is the same
after the same rounds shows that the work is. Their rounds run in turns:
`benchmarks.alternate`. A peer that cannot be run is reported, and the others go
on. What is printed is Markdown.
"""

import os
import pathlib
import tempfile

import numpy as np
from absl import app, flags

from benchmarks import alternate, tables
from benchmarks import workload as workloads
from benchmarks.alternate import Side
from benchmarks.workload import WORKLOADS, Workload
from tasks.models import keras_models

_PEERS = flags.DEFINE_list(
  'peers', ['torch', 'pfl', 'flower', 'fedjax'], 'Which frameworks.'
)

_ROOT = pathlib.Path(__file__).parent.parent.parent
_MODEL = 'mlp'
# Ours, in the environment of this program.
_OURS = {
  'bare': ['-m', 'benchmarks.bare', _MODEL],
  'ours': ['-m', 'benchmarks.federated', 'ours_fed_avg', _MODEL],
  'stock': ['-m', 'benchmarks.federated', 'stock_fed_avg', _MODEL],
}
# In an environment each; the file of the work is the last argument.
_PEER_COMMANDS = {
  'torch': ['-m', 'benchmarks.peers.torch_by_hand'],
  'pfl': [
    *('-m', 'torch.distributed.run', '--standalone'),
    f'--nproc_per_node={len(os.sched_getaffinity(0))}',
    *('-m', 'benchmarks.peers.pfl_peer'),
  ],
  'flower': [
    '-c',
    'import sys; from benchmarks.peers import flower_peer; '
    'flower_peer.main(sys.argv[1])',
  ],
  'fedjax': ['-m', 'benchmarks.peers.fedjax_peer'],
}
_ENVIRONMENT = {
  'PYTHONPATH': str(_ROOT),
  # Nothing is reported to anybody.
  'FLWR_TELEMETRY_ENABLED': '0',
  'RAY_USAGE_STATS_ENABLED': '0',
}


def main(argv: list[str]) -> None:
  """Measures and prints."""
  del argv
  sides = {side: Side(command) for side, command in _OURS.items()}
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, 'work.npz')
    write_work(path, WORKLOADS[_MODEL])
    for peer in _PEERS.value:
      python = _ROOT / '.peers' / peer / 'bin' / 'python'
      command = [*_PEER_COMMANDS[peer], path]
      sides[peer] = Side(command, str(python), _ENVIRONMENT)
    print(f'{tables.describe_machine()}\n', flush=True)
    found = alternate.compare(sides, num_rounds=WORKLOADS[_MODEL].num_rounds)
  of = ('bare', 'ours')
  print(tables.time_heading('model', of))
  print(tables.time_rows(_MODEL, sides, of, found))
  accuracies = [
    f'{side} {result["accuracy"]:.1%}'
    for side, result in found.results.items()
    if 'accuracy' in result
  ]
  print(f'\nTest accuracy: {", ".join(accuracies)}.')


def write_work(path: str | os.PathLike, workload: Workload) -> None:
  """Writes what `work_file.Work` reads, with our perceptron's weights."""
  examples, test = workloads.load_digits()
  rows = np.stack(workload.partition())
  model = keras_models.MODELS[workload.model](
    workloads.IMAGE_SHAPE, workloads.NUM_CLASSES
  )
  np.savez(
    path,
    x=examples['x'][rows],
    y=examples['y'][rows],
    test_x=test['x'],
    test_y=test['y'],
    num_rounds=workload.num_rounds,
    local_steps=workload.local_steps,
    batch_size=workload.batch_size,
    client_learning_rate=workload.client_learning_rate,
    **{
      f'weights_{number}': weights
      for number, weights in enumerate(model.get_weights())
    },
  )


if __name__ == '__main__':
  app.run(main)
