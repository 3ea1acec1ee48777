"""One look for all figures: colours, sizes, and how a figure is saved."""

import collections
import contextlib
import io
import math
import pathlib
import re
import textwrap
from typing import Any

import matplotlib
from matplotlib import axes, colors, figure, font_manager, textpath, ticker
from PIL import Image

# The palette of Okabe and Ito (2008), which colour-blind readers tell apart.
BLACK = '#000000'
GREEN = '#009E73'
BLUE = '#0072B2'
VERMILION = '#D55E00'
PURPLE = '#CC79A7'
GREY = '#6E6E6E'

ALGORITHM_COLOURS = {
  'FedAvg': BLUE,
  'CE-FedAvg': VERMILION,
  'DP-FedAvg': GREEN,
  'Model clipping': PURPLE,
}
OTHER_COLOUR = GREY

# Of a picture; with the shades at the edges of letters and lines.
_NUM_COLOURS = 128

# Runs of one algorithm in one panel differ in the dash and then in the shade:
# what is added to its colour, of which, and how much.
DASHES = ('-', (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
_SHADES = ((0.0, 0.0), (0.0, 0.5), (1.0, 0.5))

_LEGEND_SIZE = 7.5
_INCH = 72

_STYLE = {
  'font.family': 'DejaVu Sans',
  'font.size': 9.0,
  'axes.titlesize': 9.5,
  'axes.labelsize': 9.0,
  'axes.spines.top': False,
  'axes.spines.right': False,
  'axes.grid': True,
  'axes.axisbelow': True,
  'grid.color': '#E3E3E3',
  'grid.linewidth': 0.7,
  'lines.linewidth': 1.8,
  'legend.frameon': False,
  'legend.fontsize': 8.5,
  'xtick.labelsize': 8.0,
  'ytick.labelsize': 8.0,
  'figure.facecolor': 'white',
  'savefig.facecolor': 'white',
}


class Lines:
  """Looks for the lines of one panel, no two of which are alike.

  An algorithm has its colour, whatever of it was changed. CE-FedAvg starts
  dashed, so that FedAvg is seen below it where the two agree.
  """

  def __init__(self):
    self._seen = collections.Counter()

  def next_look(self, algorithm: str) -> dict[str, Any]:
    """Colour and dash of one more line of an algorithm."""
    name, variant = self._next(algorithm)
    shade, dash = divmod(variant + (name == 'CE-FedAvg'), len(DASHES))
    return {'color': _shade(name, shade), 'linestyle': DASHES[dash]}

  def next_colour(self, algorithm: str) -> str:
    """Colour of one more line of an algorithm, where the dash means another."""
    return _shade(*self._next(algorithm))

  def _next(self, algorithm: str) -> tuple[str, int]:
    """The name without what was changed in it, and how often it was here."""
    # 'DP-FedAvg by f, audited' and such.
    name = re.split(' by |, ', algorithm)[0]
    name = name if name in ALGORITHM_COLOURS else ''
    self._seen[name] += 1
    return name, self._seen[name] - 1


def _shade(name: str, shade: int) -> str:
  """The colour of an algorithm, or a darker or lighter one."""
  colour = colors.to_rgb(ALGORITHM_COLOURS.get(name, OTHER_COLOUR))
  other, share = _SHADES[shade % len(_SHADES)]
  return colors.to_hex([(1 - share) * c + share * other for c in colour])


def styled() -> contextlib.AbstractContextManager:
  """The settings of Matplotlib under which figures are drawn."""
  return matplotlib.rc_context(_STYLE)


def new_figure(
  rows: int, columns: int, panel_width: float, panel_height: float
) -> tuple[figure.Figure, list[list[axes.Axes]]]:
  """A figure of equal panels; `panel_width` and `panel_height` in inches."""
  drawing = figure.Figure(
    figsize=(columns * panel_width, rows * panel_height), layout='constrained'
  )
  grid = drawing.subplots(rows, columns, squeeze=False)
  return drawing, [list(row) for row in grid]


def wrapped(text: str, width: float, size: float) -> str:
  """Text in lines that are no longer than `width` inches, in points `size`."""
  font = font_manager.FontProperties(family=_STYLE['font.family'], size=size)
  points, _, _ = textpath.TextToPath().get_text_width_height_descent(
    text, font, ismath=False
  )
  if points <= width * _INCH:
    return text
  letters = max(int(len(text) * width * _INCH / points), 8)
  # What a number is of stays beside it.
  whole = text.replace(' = ', '\xa0=\xa0').replace(' %', '\xa0%')
  lines = textwrap.fill(whole, letters, break_on_hyphens=False)
  return lines.replace('\xa0', ' ')


def add_title(drawing: figure.Figure, title: str) -> None:
  """A title above all panels, in as many lines as it takes."""
  text = wrapped(title, 0.97 * drawing.get_figwidth(), 10.5)
  drawing.suptitle(text, x=0.01, ha='left', fontsize=10.5)


def show_rounds(ax: axes.Axes, label: str) -> None:
  """Rounds on the horizontal axis, which are integers."""
  ax.set_xlabel(label)
  ax.xaxis.set_major_locator(
    ticker.MaxNLocator(6, integer=True, steps=[1, 2, 5, 10])
  )


def add_legends_below(
  drawing: figure.Figure, grid: list[list[axes.Axes]]
) -> None:
  """A legend for each panel, below its axes, where no line can run through it.

  The figure grows by what legends of more than two lines need.
  """
  width = drawing.get_figwidth() / len(grid[0])
  # Less the handle and what is around it.
  half, whole = 0.5 * width - 0.5, width - 0.5
  extra = 0
  for row in grid:
    lines = [2]
    for ax in row:
      handles, labels = ax.get_legend_handles_labels()
      in_half = [wrapped(label, half, _LEGEND_SIZE) for label in labels]
      columns = 1 if any('\n' in label for label in in_half) else 2
      labels = [wrapped(label, whole, _LEGEND_SIZE) for label in labels]
      ax.legend(
        handles,
        labels,
        loc='upper center',
        bbox_to_anchor=(0.5, -0.17),
        ncols=columns,
        fontsize=_LEGEND_SIZE,
        # A whole dash.
        handlelength=3.0,
      )
      lines.append(sum(1 + label.count('\n') for label in labels) / columns)
    extra += math.ceil(max(lines)) - 2
  height = drawing.get_figheight() + 1.6 * _LEGEND_SIZE / _INCH * extra
  drawing.set_figheight(height)


def add_legend(drawing: figure.Figure, **settings) -> None:
  """One legend for all panels, each label once, in the order of drawing."""
  shown = {}
  for ax in drawing.axes:
    for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
      shown.setdefault(label, handle)
  drawing.legend(shown.values(), shown.keys(), **settings)


def file_part(text: str) -> str:
  """Text as a part of a file name."""
  return '_'.join(re.findall('[a-z0-9]+', text.lower()))


def save(drawing: figure.Figure, path: pathlib.Path, *, dpi: int = 128) -> None:
  """Writes a PNG of so many dots an inch, the same bytes for the same data.

  A palette in place of true colours makes the file a third of the size, and no
  difference to the eye: the drawings have few colours.
  """
  drawn = io.BytesIO()
  with styled():
    drawing.savefig(drawn, format='png', dpi=dpi)
  # Pillow is what Matplotlib itself writes PNGs with.
  picture = Image.open(drawn).convert('RGB')
  palette = picture.quantize(_NUM_COLOURS, dither=Image.Dither.NONE)
  palette.save(path, format='png', optimize=True)
