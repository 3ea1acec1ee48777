"""In which round of an epoch a client takes part, drawn by the client itself.

A client needs its id, a secret key and the number of the epoch, and nothing of
the other clients. On real devices each has a key of its own, which never leaves
it; in a simulation all share one, and differ in their ids.
"""

import hashlib


def derive_key(seed: int) -> bytes:
  """Returns the secret key of a seed.

  Args:
    seed: A number that nobody else knows, not negative.

  Returns:
    32 bytes.
  """
  size = max(1, (seed.bit_length() + 7) // 8)
  return hashlib.blake2b(
    seed.to_bytes(size, 'little'), digest_size=32, person=b'tff_clip key'
  ).digest()


def draw_round(
  client_id: str, *, key: bytes, epoch: int, rounds_per_epoch: int
) -> int:
  """Returns the round of an epoch in which a client takes part.

  It is a keyed hash: without the key, the rounds of clients and of epochs look
  uniform and independent. No round is likelier than another by more than
  2^-128.

  Args:
    client_id: The id, which no other client has.
    key: A secret of at most 64 bytes; 32 random ones are enough.
    epoch: The number of the epoch, from 0.
    rounds_per_epoch: The rounds of an epoch, at least 1.

  Returns:
    A number from 0 to `rounds_per_epoch` - 1.
  """
  drawn = hashlib.blake2b(
    client_id.encode(),
    digest_size=16,
    key=key,
    salt=epoch.to_bytes(16, 'little'),
    person=b'tff_clip round',
  ).digest()
  return int.from_bytes(drawn, 'little') % rounds_per_epoch
