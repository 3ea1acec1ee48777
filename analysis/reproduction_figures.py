"""The figures of docs/reproduction.md: the paper's from our runs."""

import math
import pathlib
from collections.abc import Callable, Sequence

from analysis import document, paper, results, rows, sections

# One seed is shown; the tables have the spread over all.
_SEED = 0
# Other ways to draw cohorts, and model clipping, have tables of their own.
_LEFT_OUT_SAMPLINGS = ('paper', 'fixed_size')


def write_figures(
  groups: Sequence[Sequence[results.Run]], folder: pathlib.Path
) -> list[document.Block]:
  """Writes the figures and returns their section.

  Args:
    groups: Groups of comparable runs.
    folder: Where the PNGs go; the page that shows them is beside it.
  """
  folder.mkdir(parents=True, exist_ok=True)
  for old in folder.glob('*.png'):
    old.unlink()
  shown = _shown(groups, _with_most_curves)
  blocks: list[document.Block] = [
    document.Heading("The paper's figures"),
    document.Paragraph(
      'Of seed 0. MNIST stands in for EMNIST. A panel is a row of the tables '
      'above at one scale: for accuracies that with all algorithms, for norms '
      'and angles that of the most rounds.'
    ),
  ]
  blocks += sections.accuracy_section(shown, folder)[1:]
  # The paper has no natural federation, and none as small as the sample.
  updates = _one_skew(
    [
      group
      for group in _shown(groups, _with_most_rounds)
      if group[0].partition != 'natural' and group[0].task != 'embedded_digits'
    ]
  )
  runs = [run for group in updates for run in group if not run.is_private]
  blocks += sections.updates_section(runs, updates, folder)[1:]
  return [
    document.Picture(f'{folder.name}/{block.file_name}', block.caption)
    if isinstance(block, document.Picture)
    else block
    for block in blocks
  ]


def _shown(
  groups: Sequence[Sequence[results.Run]],
  rank: Callable[[Sequence[results.Run]], tuple],
) -> list[list[results.Run]]:
  """The groups of seed 0 with the paper's algorithms, finished runs alone.

  Args:
    groups: Groups of comparable runs.
    rank: Which of several scales of a row is shown: that of the highest rank.
  """
  highest: dict[tuple, list[results.Run]] = {}
  for group in groups:
    runs = [
      run
      for run in group
      if run.seed == _SEED
      and run.is_complete
      and not run.clips_models
      and (run.privacy or {}).get('sampling') not in _LEFT_OUT_SAMPLINGS
    ]
    if runs:
      size = runs[0].experiment.get('examples_per_client')
      place = runs[0].task, runs[0].model, runs[0].partition, size
      highest[place] = max(highest.get(place, runs), runs, key=rank)
  return sorted(highest.values(), key=_order)


def _with_most_curves(group: Sequence[results.Run]) -> tuple:
  """Accuracy: with DP-FedAvg where it was run, then the largest scale."""
  return len({run.algorithm for run in group}), math.prod(
    rows.scale_of(group[0])
  )


def _with_most_rounds(group: Sequence[results.Run]) -> tuple:
  """Norms and angles: the most rounds t, so that the panels agree in scale."""
  return group[0].num_rounds, math.prod(rows.scale_of(group[0]))


def _one_skew(
  groups: Sequence[Sequence[results.Run]],
) -> list[Sequence[results.Run]]:
  """Leaves out a split of which there is another one with larger clients.

  Figs. 1 and 2 are of Table 2's clients, of 500 examples.
  """

  def place(group: Sequence[results.Run]) -> tuple:
    return group[0].task, group[0].model, group[0].is_iid

  def size(group: Sequence[results.Run]) -> int:
    return group[0].experiment.get('examples_per_client') or 0

  return [
    group
    for group in groups
    if not any(
      place(other) == place(group) and size(other) > size(group)
      for other in groups
    )
  ]


def _order(group: Sequence[results.Run]) -> tuple:
  run = group[0]
  return (
    run.task,
    paper.model_rank(paper.model_name(run)),
    not run.is_iid,
    run.experiment.get('examples_per_client') or 0,
  )
