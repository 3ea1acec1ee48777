"""Shakespeare's snippets as sequences, for the next character of a speech.

As in TFF's baseline: a token a byte between a begin and an end token, cut into
pieces of 81, the last one padded with 0; the first 80 tokens of a piece are the
input and the last 80 the labels.
"""

from collections.abc import Sequence

import numpy as np

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


def to_examples(snippets: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
  """Returns the inputs and labels of snippets.

  Args:
    snippets: The texts.

  Returns:
    Tokens and labels int32 [pieces, 80], below `VOCAB_SIZE`.
  """
  table = np.full(256, _UNKNOWN, np.int32)
  table[np.frombuffer(_CHARACTERS, np.uint8)] = np.arange(
    1, len(_CHARACTERS) + 1
  )
  length = SEQUENCE_LENGTH + 1
  pieces = [np.zeros((0, length), np.int32)]
  for snippet in snippets:
    tokens = table[np.frombuffer(snippet, np.uint8)]
    padded = np.zeros(-(-(len(tokens) + 2) // length) * length, np.int32)
    padded[0] = _BEGIN
    padded[1 : len(tokens) + 1] = tokens
    padded[len(tokens) + 1] = _END
    pieces.append(padded.reshape(-1, length))
  rows = np.concatenate(pieces)
  return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])
