"""Writes mine.npz: measurements of 40 clients, and whose each of them is."""

import numpy as np

rng = np.random.default_rng(0)
centers = 2 * rng.normal(size=(3, 8))


def draw(shares, size):
  """Draws `size` examples of three classes, in these shares."""
  y = rng.choice(3, size, p=shares)
  return centers[y] + rng.normal(size=(size, 8)), y


# Each client has shares of its own: nobody's data are like the others'.
sizes = rng.integers(20, 60, 40)
examples = [draw(rng.dirichlet([0.5] * 3), size) for size in sizes]
x, y = zip(*examples, strict=True)
x_test, y_test = draw([1 / 3] * 3, 500)
np.savez(
  'mine.npz',
  x=np.concatenate(x),
  y=np.concatenate(y),
  client=np.repeat(np.arange(40), sizes),
  x_test=x_test,
  y_test=y_test,
)
