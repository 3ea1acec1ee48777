"""Panels of lines: the one drawer of all figures but the scatter of updates."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib import axes, figure

from analysis.figures import style

_TITLE_SIZE = 8.5
_MAX_COLUMNS = 3


@dataclasses.dataclass(frozen=True, eq=False)
class Line:
  """A line, or a level where it has no x.

  Attributes:
    label: What the legend says.
    look: How it is drawn: arguments of `Axes.plot`.
    y: Its values; one for a level.
    x: Where they are; None for a level.
    low: The lower ends of its band; None without one.
    high: The upper ends.
  """

  label: str
  look: Mapping[str, Any]
  y: Sequence[float]
  x: Sequence[float] | None = None
  low: Sequence[float] | None = None
  high: Sequence[float] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Panel:
  """Lines on one pair of axes.

  Attributes:
    title: What stands above it; empty for nothing.
    lines: The lines, in the order of the legend.
    y_label: What the vertical axis shows.
    limits: The ends of the vertical axis; None at an end for the data's.
  """

  title: str
  lines: Sequence[Line]
  y_label: str
  limits: tuple[float | None, float | None] = (None, None)


def draw(
  panels: Sequence[Panel],
  *,
  x_label: str,
  title: str = '',
  size: tuple[float, float] | None = None,
) -> figure.Figure:
  """Draws panels in rows of up to three, each with its legend below.

  Args:
    panels: At least one.
    x_label: What the horizontal axes show.
    title: What stands above all; empty for nothing.
    size: Width and height of a panel in inches; None for one that fits.
  """
  columns = 2 if len(panels) == 4 else min(len(panels), _MAX_COLUMNS)
  rows = math.ceil(len(panels) / columns)
  size = size or ((6.2, 3.8) if len(panels) == 1 else (4.0, 3.2))
  with style.styled():
    drawing, grid = style.new_figure(rows, columns, *size)
    every = [ax for row in grid for ax in row]
    for ax, panel in zip(every, panels, strict=False):
      _draw_panel(ax, panel, size[0])
      style.show_rounds(ax, x_label)
    # Panels beside each other mostly share it.
    for row, first in zip(grid, panels[::columns], strict=True):
      row[0].set_ylabel(first.y_label)
    for ax, panel in zip(every, panels, strict=False):
      if panel.y_label != panels[0].y_label:
        ax.set_ylabel(panel.y_label)
    for ax in every[len(panels) :]:
      ax.remove()
    if title:
      style.add_title(drawing, title)
    style.add_legends_below(drawing, grid)
  return drawing


def _draw_panel(ax: axes.Axes, panel: Panel, width: float) -> None:
  for line in panel.lines:
    if line.x is None:
      ax.axhline(line.y[0], label=line.label, **line.look)
      continue
    ax.plot(line.x, line.y, label=line.label, **line.look)
    if line.low is not None and any(pd.Series(line.high) > line.low):
      ax.fill_between(
        line.x,
        line.low,
        line.high,
        color=line.look['color'],
        alpha=0.2,
        linewidth=0,
      )
  # Less the labels of the axis.
  ax.set_title(
    style.wrapped(panel.title, width - 0.5, _TITLE_SIZE),
    loc='left',
    fontsize=_TITLE_SIZE,
  )
  ax.set_ylim(*panel.limits)
