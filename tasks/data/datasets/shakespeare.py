"""TFF's Shakespeare: the next character of a speech, by role.

715 roles with 16,068 training and 2,356 test snippets. Snippets become
sequences as in TFF's baseline: a token a byte between a begin and an end token,
cut into pieces of 81, the last one padded with 0; the first 80 tokens of a
piece are the input and the last 80 the labels.
"""

import collections
from collections.abc import Sequence

import numpy as np

from tasks.data import task
from tasks.data.datasets import data_files, tff_sqlite
from tasks.data.partitions import partition_config

FILE = 'shakespeare.sqlite'
SEQUENCE_LENGTH = 80

# In this order the characters have the tokens 1, 2, ...; 0 is padding. Source:
# TFF's tutorial "Federated Learning for Text Generation", as in its baseline.
_CHARACTERS = (
  b'dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#\'/37;?bfjnrvzBFJNRVZ"&*.26:\n'
  b'aeimquyAEIMQUY]!%)-159\r'
)
_UNKNOWN = len(_CHARACTERS) + 1
_BEGIN = len(_CHARACTERS) + 2
_END = len(_CHARACTERS) + 3

VOCAB_SIZE = len(_CHARACTERS) + 4


def create_shakespeare_task(
  split: partition_config.PartitionConfig,
  *,
  data_dir: str | None = None,
  cache_dir: str | None = None,
) -> task.Task:
  """Creates the task of the next character.

  Args:
    split: How to split the training sequences over clients: 'natural' for
      TFF's own clients, the roles, or 'iid'.
    data_dir: Folder of shakespeare.sqlite; None to download it with TFF.
    cache_dir: Folder of the downloads; None for the user's cache folder.

  Returns:
    The task, with tokens and labels int32 [80] below 90.

  Raises:
    data_files.DataError: If the file is missing or refused.
  """
  import tensorflow as tf
  import tensorflow_federated as tff

  path = tff_sqlite.find_or_download(
    'shakespeare',
    FILE,
    tff.simulation.datasets.shakespeare.load_data,
    data_dir,
    cache_dir,
  )
  features = {'snippets': ((), tf.string, None)}
  splits = {}
  for part in ('train', 'test'):
    arrays, owners = tff_sqlite.read_split(path, part, features)
    pieces, snippet_of = to_sequences(arrays['snippets'])
    examples = collections.OrderedDict(
      x=np.ascontiguousarray(pieces[:, :-1]),
      y=np.ascontiguousarray(pieces[:, 1:]),
    )
    splits[part] = examples, owners[snippet_of]
  (train, owners), (test, _) = splits['train'], splits['test']
  if not len(train['y']) or not len(test['y']):
    raise data_files.DataError(f'{path} must hold snippets, found none.')
  return task.Task(
    name='shakespeare',
    train=train,
    partition=split.split(train['y'], owners),
    test=test,
    num_classes=VOCAB_SIZE,
    source="TFF's Shakespeare",
    # Each role's snippets are split over both.
    test_is_of_clients=True,
    has_padding=True,
  )


def to_sequences(
  snippets: Sequence[bytes],
) -> tuple[np.ndarray, np.ndarray]:
  """Turns snippets into pieces of 81 tokens.

  Args:
    snippets: The texts.

  Returns:
    int32 [pieces, 81], and int64 [pieces] that says of which snippet each is.
  """
  table = np.full(256, _UNKNOWN, np.int32)
  table[np.frombuffer(_CHARACTERS, np.uint8)] = np.arange(
    1, len(_CHARACTERS) + 1
  )
  length = SEQUENCE_LENGTH + 1
  pieces = []
  for snippet in snippets:
    tokens = table[np.frombuffer(snippet, np.uint8)]
    padded = np.zeros(-(-(len(tokens) + 2) // length) * length, np.int32)
    padded[0] = _BEGIN
    padded[1 : len(tokens) + 1] = tokens
    padded[len(tokens) + 1] = _END
    pieces.append(padded.reshape(-1, length))
  counts = [len(rows) for rows in pieces]
  empty = np.zeros((0, length), np.int32)
  return (
    np.concatenate([empty, *pieces]),
    np.repeat(np.arange(len(pieces)), counts),
  )
