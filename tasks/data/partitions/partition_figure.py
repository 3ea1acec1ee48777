"""The figure of how many examples of each class each client holds.

Above, the classes of the first clients, one bar a client. Below, all clients,
one column a client, sorted by their largest class.
"""

import os

import numpy as np

_MOST_BARS = 50


def write_class_counts_figure(
  counts: np.ndarray, title: str, path: str | os.PathLike
) -> None:
  """Draws the class counts by client.

  Args:
    counts: int [clients, classes], with at least one client.
    title: One line, such as the summary of the partition.
    path: The file to write; its ending says the format.
  """
  # Imported here: only who draws needs it.
  from matplotlib import figure

  counts = np.asarray(counts)
  fig = figure.Figure(figsize=(10, 6.5), layout='constrained')
  bars, image = fig.subplots(2, 1)
  _draw_bars(bars, counts[:_MOST_BARS])
  largest = counts.argmax(axis=1)
  order = np.lexsort((-counts.max(axis=1), largest))
  shown = image.imshow(
    counts[order].T, aspect='auto', interpolation='nearest', vmin=0
  )
  image.set(
    xlabel='client, sorted by its largest class',
    ylabel='class',
    title=f'All {len(counts)} clients',
  )
  fig.colorbar(shown, ax=image, label='examples')
  fig.suptitle(title, fontsize=9, wrap=True)
  fig.savefig(path, dpi=120)


def _draw_bars(axes, counts: np.ndarray) -> None:
  """Draws one stacked bar a client."""
  from matplotlib import colormaps

  num_clients, num_classes = counts.shape
  palette = colormaps['tab10' if num_classes <= 10 else 'turbo']
  bottom = np.zeros(num_clients)
  for k in range(num_classes):
    color = palette(k if num_classes <= 10 else k / (num_classes - 1))
    axes.bar(
      np.arange(num_clients),
      counts[:, k],
      bottom=bottom,
      width=1,
      color=color,
      label=str(k),
    )
    bottom += counts[:, k]
  axes.set(
    xlabel='client',
    ylabel='examples',
    title=f'First {num_clients} clients',
    xlim=(-0.5, num_clients - 0.5),
  )
  if num_classes <= 10:
    axes.legend(title='class', loc='center left', bbox_to_anchor=(1, 0.5))
