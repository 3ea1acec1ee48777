"""What follows: the report's sections on concentration, privacy and theory."""

import pathlib
from collections.abc import Sequence

import pandas as pd

from analysis import (
  advice,
  bound,
  concentration,
  document,
  figures,
  paper,
  results,
  sections,
  style,
  tables,
)


def concentration_section(
  groups: Sequence[Sequence[results.Run]], output: pathlib.Path
) -> list[document.Block]:
  """Spread of the norms against the accuracy lost by clipping."""
  heading = document.Heading('Concentration of norms and the drop by clipping')
  pairs = concentration.pairs(groups)
  if len(pairs) < concentration.MIN_PAIRS:
    return [
      heading,
      document.Paragraph(
        f'Not shown: it needs at least {concentration.MIN_PAIRS} pairs of a '
        f'FedAvg and a CE-FedAvg run, found {len(pairs)}.'
      ),
    ]
  try:
    text = str(
      concentration.rank_correlation(pairs['relative_spread'], pairs['drop'])
    )
  except ValueError as error:
    text = f'No rank correlation: {error}'
  name = 'concentration.png'
  style.save(figures.draw_concentration(pairs, text), output / name)
  return [
    heading,
    document.Paragraph(
      f'{text}. The interval is a percentile bootstrap over the pairs, too '
      'short where these are few; p is of a permutation test. Both take the '
      'pairs to be independent.'
    ),
    document.Picture(
      name, 'Spread of the update norms of FedAvg against the accuracy lost.'
    ),
  ]


def epsilon_section(
  groups: Sequence[Sequence[results.Run]], output: pathlib.Path
) -> list[document.Block]:
  """Final accuracy by privacy budget."""
  blocks: list[document.Block] = [document.Heading('Accuracy by ε')]
  titles = figures.panel_titles(groups)
  for title, group in zip(titles, groups, strict=True):
    data = figures.epsilon_data(group)
    if data['epsilon'].nunique() < 2:
      continue
    references = {
      paper.algorithm_name(run): run.final_accuracy
      for run in tables.ordered(group)
      if run.algorithm in ('fed_avg', 'ce_fed_avg') and run.is_complete
    }
    name = f'epsilon_{style.file_part(title)}.png'
    style.save(figures.draw_epsilon(data, references, title), output / name)
    blocks.append(
      document.Picture(name, f'Final accuracy by privacy budget: {title}.')
    )
  if len(blocks) == 1:
    blocks.append(
      document.Paragraph(
        'Not shown: it needs finished private runs of one setting at two or '
        'more values of ε.'
      )
    )
  return blocks


def bound_section(
  groups: Sequence[Sequence[results.Run]], output: pathlib.Path
) -> list[document.Block]:
  """Theorem 1's clipping terms by round, and what clipping and noise cost."""
  blocks: list[document.Block] = [
    document.Heading("The bound's terms by round"),
    document.Paragraph(
      'Theorem 1 charges clipping with the deviation of the factors '
      'α = c / max(c, ‖Δx‖): between clients, from heterogeneous data, and '
      'within a client, from the variance of its gradients. Its first clipping '
      'term is 4 G² times what the left panel shows. The right panel has the '
      'updates themselves: what clipping changes beyond a common factor, at '
      'most, and the noise over √T, both as shares of the mean update norm. '
      'What clipping changes adds up over T rounds; independent noise adds up '
      'to √T of one. FedAvg is shown as if it clipped like the runs beside it.'
    ),
  ]
  for title, group in zip(figures.panel_titles(groups), groups, strict=True):
    data = bound.deviation_data(group)
    if data.empty:
      continue
    name = f'deviation_{style.file_part(title)}.png'
    style.save(bound.draw_deviation(data, title), output / name)
    blocks.append(
      document.Picture(
        name,
        f'Clipping and noise by round: {title}.'
        + sections.simulation_caption(group),
      )
    )
    if data['within_clients'].isna().all():
      blocks.append(
        document.Paragraph(
          'Within clients: not measured. It takes repeated local runs on one '
          'model (`--estimate_repeats` of `tasks.train`). Between clients is '
          'then that of α, which has the variance of single runs in it.'
        )
      )
    terms = bound.term_data(group)
    if terms.empty:
      blocks.append(
        document.Paragraph(
          'The terms of the bound in full: not measured. They need estimates '
          'of L, G, σ_l and σ_g, which `python -m tasks.estimate_constants` '
          'makes.'
        )
      )
      continue
    name = f'bound_{style.file_part(title)}.png'
    style.save(bound.draw_terms(terms, title), output / name)
    blocks.append(
      document.Picture(
        name,
        f'The terms of Theorem 1 by round: {title}.'
        + sections.simulation_caption(group),
      )
    )
    blocks.append(
      document.Paragraph(
        'L, G, σ_l and σ_g are lower estimates from some models and clients, f '
        'is the mean of the clients’ losses, and the terms are those of a '
        'bound: they say which cause weighs most, not how large ‖∇f‖² is. A '
        'term that is 0, but for rounding, is not drawn.'
      )
    )
    absent = [
      run.name
      for run in tables.ordered(group)
      if run.updates and run.constants is None and not run.clips_models
    ]
    if absent:
      blocks.append(
        document.Paragraph(f'Not estimated for: {", ".join(absent)}.')
      )
    broken = bound.broken_conditions(group)
    if broken:
      blocks.append(
        document.Paragraph(
          'The theorem does not cover these runs, because their step sizes '
          'break its conditions:'
        )
      )
      blocks.append(document.BulletList(tuple(broken)))
  if len(blocks) == 2:
    blocks[1:] = [
      document.Paragraph(
        'Not shown: it needs runs with recorded updates and a threshold.'
      )
    ]
  return blocks


def advice_section(
  groups: Sequence[Sequence[results.Run]],
) -> list[document.Block]:
  """A threshold for each ε, by the estimated bias and noise."""
  blocks: list[document.Block] = [
    document.Heading('Advice: a threshold, and what ε costs'),
    document.Paragraph(
      'For each ε, the threshold c with which clipping and noise together '
      'change the sum of T updates least, as estimated from the recorded '
      'norms; the shares are those of the mean update norm. It takes η_g to be '
      'raised by 1/ᾱ, as clipping shortens updates by ᾱ. The share of '
      'clipping is an upper limit, reached if what is lost points one way; '
      'the noise over √T takes the updates of all rounds to point one way. The '
      'norms are private data: a threshold chosen from them costs privacy that '
      'is not in ε.'
    ),
  ]
  for title, group in zip(figures.panel_titles(groups), groups, strict=True):
    table = advice.advise(group)
    if table.empty:
      continue
    blocks.append(document.Heading(title, 3))
    blocks.append(document.Table(advice.format_advice(table)))
    used = sorted({run.clipping_norm for run in group} - {None})
    source = advice.find_source(group)
    if source is not None and source.has_simulation_figures:
      blocks.append(
        document.Paragraph(f'{source.name}: {sections.SIMULATION_NOTE}')
      )
    if used:
      blocks.append(
        document.Paragraph(
          f'The runs used c = {", ".join(f"{norm:.4g}" for norm in used)}.'
        )
      )
    blocks.append(document.Paragraph(_advice_sentence(table)))
  if len(blocks) == 2:
    blocks[1:] = [
      document.Paragraph('Not shown: it needs a run with recorded updates.')
    ]
  return blocks


def _advice_sentence(table: pd.DataFrame) -> str:
  """What the table says, in words."""
  usable = table[table['averaged_noise'] <= 1.0]
  if usable.empty:
    return (
      'With every ε of the table the noise of T rounds is larger than their '
      'updates: more clients a round, a larger population or a smaller model '
      'lower it.'
    )
  return (
    f'From ε = {usable["epsilon"].iloc[0]:g} on, the noise of T rounds is '
    'smaller than their updates.'
  )
