"""The sections of docs/reproduction.md on what the paper does not tabulate."""

import pathlib
from collections.abc import Mapping, Sequence

import pandas as pd

from analysis import document, paper, results, rows, tables

# A threshold on models below this times that on updates is the same one.
_SAME_THRESHOLD = 1.01

_Groups = Sequence[Sequence[results.Run]]


def model_clipping_section(groups: _Groups) -> list[document.Block]:
  """Difference clipping beside model clipping."""
  chosen = results.with_other_seeds(
    _groups_of(groups, lambda run: run.clips_models), groups
  )
  lines = []
  for algorithm, clips in (
    ('fed_avg', 'nothing'),
    ('ce_fed_avg', 'updates'),
    ('model_clipping_fed_avg', 'models'),
  ):
    # Thresholds on models are flags; those on updates are of each seed.
    for threshold in _thresholds(chosen) if clips == 'models' else [None]:
      lines += _lines(
        chosen, algorithm, threshold, {'clips': clips}, with_privacy=False
      )
  return _section(
    'Difference clipping against model clipping',
    'The MLP of Table 3. The paper shows that model clipping can come to rest '
    'away from the minimiser (Claim 2.1), and that with suitable η_l and Q '
    'difference clipping reaches it (Claim 2.2). Here, at the threshold of the '
    'updates, clipped models learn little. The norm of a model is far larger '
    'than that of an update, and with a threshold to match (9, half of the '
    'norm of the initial model) they lose about as little as clipped updates '
    'do; but the noise of the same ε is '
    f'proportional to c.{_noise_ratios(groups)} DP-FedAvg with clipped models '
    'was not run.',
    lines,
    'table3_mlp_emnist_noniid_ce table3_mlp_emnist_noniid_model_clipping',
    chosen,
  )


def mobilenet_section(groups: _Groups) -> list[document.Block]:
  """MobileNetV2 on CIFAR-10, which Table 4 does not have."""
  chosen = [
    group
    for group in groups
    if (group[0].model, group[0].task) == ('mobilenet_v2', 'cifar10')
  ]
  return _section(
    'MobileNetV2 on CIFAR-10',
    'The paper’s Table 4 does not have it. IID, with N, P, Q, batch and T of '
    'the other large models here. Drops are from FedAvg.',
    _lines_of_all(chosen),
    'mobilenet_v2_cifar10_iid',
    chosen,
  )


def writers_section(groups: _Groups) -> list[document.Block]:
  """The natural federation: a client for each writer."""
  chosen = _groups_of(groups, lambda run: run.partition == 'natural')
  return _section(
    'A natural federation: MNIST by its writers',
    'The paper makes its clients by label. Here a client is one of the 539 '
    'people who wrote MNIST’s training digits, 19 to 131 each; P / N is 1/24 '
    'as in the paper, T and all else as in its MLP runs. Drops are from '
    'FedAvg.',
    _lines_of_all(chosen),
    'mlp_mnist_writers',
    chosen,
  )


def sample_section(groups: _Groups) -> list[document.Block]:
  """The row that `make reproduce-smallest` repeats."""
  chosen = _groups_of(groups, lambda run: run.task == 'embedded_digits')
  return _section(
    'The smallest row: a sample of MNIST',
    'The MLP on the 4,000 digits that come with the package: 500 clients of 8, '
    'P = 100, T = 60. `make reproduce-smallest` runs it again with seed 0 and '
    'prints its figures beside these. Drops are from FedAvg.',
    _lines_of_all(chosen),
    'mlp_embedded_digits',
    chosen,
  )


def search_section(
  folder: pathlib.Path, runs: Sequence[results.Run]
) -> list[document.Block]:
  """The searches for learning rates, as their tables have them."""
  blocks: list[document.Block] = [
    document.Heading('The search for learning rates'),
    document.Paragraph(
      'On unclipped FedAvg, seed 0, for the rounds of the second column, with '
      'the grid files in tasks/flagfiles/search; the tables are in '
      '`results/search/`. Rates are judged on test images, since the tools '
      'have no other held-out set; the accuracies of the rows are slightly '
      'optimistic for that, for all algorithms of a row alike. Where not the '
      'highest is used, the two are within the error of the test images. '
      'Where the rate that is used is the lowest of its search, a lower one '
      'might be better. A rate at which the run diverged has the accuracy of '
      'its last evaluation. MNIST stands in for EMNIST.'
    ),
  ]
  lines = []
  for path in sorted(folder.glob('*/sweep.csv')):
    sweep = pd.read_csv(path)
    if 'final_accuracy' not in sweep:
      continue
    sweep = sweep.dropna(subset=['final_accuracy'])
    accuracies = sweep['final_accuracy']
    used = {
      f'{run.experiment["client_learning_rate"]:g}'
      for run in runs
      if f'{run.model}_{run.task}' == path.parent.name
    }
    lines.append(
      {
        'model and data': path.parent.name.replace('_', ' '),
        'rounds': str(int(sweep['rounds'].max())),
        'η_l: accuracy (%)': ', '.join(
          f'{rate:g}: {100 * accuracy:.1f}'
          for rate, accuracy in zip(
            sweep['client_learning_rate'], accuracies, strict=True
          )
        ),
        'highest': f'{sweep["client_learning_rate"][accuracies.idxmax()]:g}',
        'used': ', '.join(sorted(used)) or tables.MISSING,
        'repeat with': (
          f'`python -m tasks.sweep --grid=tasks/flagfiles/search/'
          f'{path.parent.name}.grid --output_dir=runs/search/'
          f'{path.parent.name}`'
        ),
      }
    )
  if not lines:
    return [*blocks, document.Paragraph('No such search was run yet.')]
  return [*blocks, document.Table(pd.DataFrame(lines))]


def _lines_of_all(groups: _Groups) -> list[dict[str, str]]:
  """A line for each of the paper's algorithms, over seeds."""
  return [
    line
    for algorithm in ('fed_avg', 'ce_fed_avg', 'dp_fed_avg')
    for line in _lines(groups, algorithm, None, {}, with_privacy=True)
  ]


def _lines(
  groups: _Groups,
  algorithm: str,
  threshold: float | None,
  more: Mapping[str, str],
  *,
  with_privacy: bool,
) -> list[dict[str, str]]:
  """A line on an algorithm over seeds, or none where it was not run.

  Args:
    groups: Groups of comparable runs, one for each seed.
    algorithm: The algorithm.
    threshold: Only runs with this threshold; None for all.
    more: More columns.
    with_privacy: Whether there are columns of z, ε and δ.
  """
  chosen = [
    [
      run
      for run in group
      if run.is_complete
      and (
        run.algorithm == 'fed_avg'
        or (run.algorithm == algorithm and threshold in (None, run.threshold))
      )
    ]
    for group in groups
  ]
  runs = [r for group in chosen for r in group if r.algorithm == algorithm]
  if not runs:
    return []
  drop = rows.drop_of(chosen, algorithm, 'fed_avg')
  private = {}
  if with_privacy:
    row = tables.format_run_table(tables.run_table(runs[:1])).iloc[0]
    private = {key: row[key] for key in ('noise multiplier', 'ε', 'δ')}
  return [
    {
      'algorithm': paper.algorithm_name(runs[0]),
      'data': paper.data_name(runs[0]),
      **more,
      'rounds': str(runs[0].num_rounds),
      'final accuracy (%)': tables.mean_and_spread(
        [run.final_accuracy for run in runs]
      ),
      'drop (points)': (
        tables.MISSING if drop is None or algorithm == 'fed_avg' else str(drop)
      ),
      'c': _mean([run.threshold for run in runs], '.3g'),
      'clipped (%)': _mean([100 * run.clipped_fraction for run in runs], '.0f'),
      **private,
      'seeds': str(len(runs)),
    }
  ]


def _mean(values: Sequence[float | None], spec: str) -> str:
  if None in values:
    return tables.MISSING
  return tables.format_number(sum(values) / len(values), spec)


def _thresholds(groups: _Groups) -> list[float]:
  return sorted(
    {run.threshold for group in groups for run in group if run.clips_models}
  )


def _noise_ratios(groups: _Groups) -> str:
  """How much more noise the thresholds on models take than those on updates."""
  ratios = {}
  for group in groups:
    norms = {run.clipping_norm for run in group} - {None}
    for run in group:
      if run.clips_models and len(norms) == 1:
        ratio = run.threshold / min(norms)
        if ratio < _SAME_THRESHOLD:
          continue
        ratios[f'at c = {run.threshold:.4g} it is {ratio:.1f} times that'] = (
          None
        )
  if not ratios:
    return ''
  return f' For a threshold on models {"; ".join(ratios)} of CE-FedAvg.'


def _groups_of(groups: _Groups, condition) -> list[Sequence[results.Run]]:
  return [group for group in groups if any(map(condition, group))]


def _section(
  title: str,
  text: str,
  lines: Sequence[dict[str, str]],
  stem: str,
  groups: _Groups,
) -> list[document.Block]:
  heading = document.Heading(title)
  seeds = sorted({group[0].seed or 0 for group in groups}) or [0]
  command = rows.reproduce_command(stem, seeds)
  if not lines:
    return [heading, document.Paragraph(f'Not run yet: `{command}`.')]
  return [
    heading,
    document.Paragraph(
      f'{text} ± is the standard deviation over seeds for accuracies, and half '
      'of the 95 % interval for drops.'
    ),
    document.Table(pd.DataFrame(lines)),
    document.Paragraph(f'Repeat with `{command}`.'),
  ]
