"""Makes of other formats what `own.create_task` and `numpy.savez` take.

Test examples of the training clients come as `client_test`, with which a
private run has no guarantee: leave them out there. Without the files of the
test part there are none.
"""

import json

import h5py
import numpy as np


def arrays_of(train, test):
  """Returns the arrays of two parts, each {client: (x, y)}."""

  def joined(part, suffix):
    # Of clients without examples, the shape is not known.
    part = {
      c: (np.array(x), np.array(y)) for c, (x, y) in part.items() if len(y)
    }
    if not part:
      return {}
    x, y = (
      np.concatenate(arrays) for arrays in zip(*part.values(), strict=True)
    )
    client = np.repeat(list(part), [len(labels) for _, labels in part.values()])
    return {f'x{suffix}': x, f'y{suffix}': y, f'client{suffix}': client}

  return {
    **joined(train, ''),
    **joined(test, '_test'),
    'all_clients': np.array(list(train)),
  }


def read_leaf(folder):
  """LEAF: train/*.json and test/*.json, with `users` and `user_data`."""
  parts = {'train': {}, 'test': {}}
  for part, clients in parts.items():
    for path in sorted((folder / part).glob('*.json')):
      found = json.loads(path.read_text())
      for user in found['users']:
        data = found['user_data'][user]
        clients[user] = data['x'], data['y']
  return arrays_of(parts['train'], parts['test'])


def read_pfllib(folder):
  """PFLlib: train/CLIENT.npz and test/CLIENT.npz, each a pickled dictionary.

  A pickle can run any code: read only files that you made yourself.
  """

  def read(part):
    for path in sorted((folder / part).glob('*.npz')):
      with np.load(path, allow_pickle=True) as file:
        data = file['data'].item()
      yield path.stem, (data['x'], data['y'])

  return arrays_of(dict(read('train')), dict(read('test')))


def read_h5(train_path, test_path, x='pixels', y='label'):
  """TFF's HDF5: the group `examples` has one for each client."""

  def read(path):
    with h5py.File(path) as file:
      return {c: (g[x][:], g[y][:]) for c, g in file['examples'].items()}

  return arrays_of(read(train_path), read(test_path))


def read_client_data(train, test, x='pixels', y='label'):
  """`tff.simulation.datasets.ClientData`, of TFF's files or of your own."""

  def read(part):
    for client_id in part.client_ids:
      data = part.create_tf_dataset_for_client(client_id)
      examples = list(data.as_numpy_iterator())
      yield client_id, tuple(np.array([e[k] for e in examples]) for k in (x, y))

  return arrays_of(dict(read(train)), dict(read(test)))
