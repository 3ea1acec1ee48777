"""One look for all figures: colours, sizes, and how a figure is saved."""

import contextlib
import io
import pathlib
import re

import matplotlib
from matplotlib import axes, figure
from PIL import Image

# The palette of Okabe and Ito (2008), which colour-blind readers tell apart.
BLACK = '#000000'
ORANGE = '#E69F00'
SKY_BLUE = '#56B4E9'
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

# Runs of one algorithm in one panel differ in the dash.
DASHES = ('-', (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))

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


def algorithm_colour(algorithm: str) -> str:
  """The colour of an algorithm, whatever of it was changed."""
  return ALGORITHM_COLOURS.get(_plain_name(algorithm), OTHER_COLOUR)


def line_dash(algorithm: str, variant: int) -> str | tuple:
  """The dash of the nth line of an algorithm in one panel.

  CE-FedAvg starts dashed, so that FedAvg is seen below it where the two agree.

  Args:
    algorithm: The name of the algorithm.
    variant: 0 for its first line in the panel, 1 for its second, and so on.
  """
  first = 1 if _plain_name(algorithm) == 'CE-FedAvg' else 0
  return DASHES[(first + variant) % len(DASHES)]


def _plain_name(algorithm: str) -> str:
  """The name without what was changed: 'DP-FedAvg by f, audited' and such."""
  return re.split(' by |, ', algorithm)[0]


def styled() -> contextlib.AbstractContextManager:
  """The settings of Matplotlib under which figures are drawn."""
  return matplotlib.rc_context(_STYLE)


def new_figure(
  rows: int,
  columns: int,
  panel_width: float,
  panel_height: float,
  *,
  share_scales: bool = True,
) -> tuple[figure.Figure, list[list[axes.Axes]]]:
  """A figure of equal panels; `panel_width` and `panel_height` in inches."""
  drawing = figure.Figure(
    figsize=(columns * panel_width, rows * panel_height), layout='constrained'
  )
  grid = drawing.subplots(
    rows, columns, squeeze=False, sharex=share_scales, sharey=share_scales
  )
  return drawing, [list(row) for row in grid]


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


def save(drawing: figure.Figure, path: pathlib.Path) -> None:
  """Writes a PNG of 128 dots an inch, the same bytes for the same data.

  A palette in place of true colours makes the file a third of the size, and no
  difference to the eye: the drawings have few colours.
  """
  drawn = io.BytesIO()
  with styled():
    drawing.savefig(drawn, format='png', dpi=128)
  # Pillow is what Matplotlib itself writes PNGs with.
  picture = Image.open(drawn).convert('RGB')
  palette = picture.quantize(_NUM_COLOURS, dither=Image.Dither.NONE)
  palette.save(path, format='png', optimize=True)
