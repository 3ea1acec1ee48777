"""How the clients of a round are split, wherever they run.

A sum of floats depends on the order of its additions. Every runtime adds up the
clients of a shard one after the other, from zero, and then the shards one after
the other: so the bits of a sum depend on the number of shards alone.
"""


def split(num_clients: int, num_shards: int) -> list[range]:
  """Returns the clients of each shard, by their positions.

  Args:
    num_clients: The number of clients, at least 0.
    num_shards: The number of shards to make, at least 1.

  Returns:
    Consecutive ranges, whose lengths differ by at most 1. None is empty, so
    there are fewer than `num_shards` for fewer clients; without clients there
    is one empty range.
  """
  num_shards = max(1, min(num_shards, num_clients))
  bounds = [i * num_clients // num_shards for i in range(num_shards + 1)]
  return [
    range(start, stop)
    for start, stop in zip(bounds[:-1], bounds[1:], strict=True)
  ]
