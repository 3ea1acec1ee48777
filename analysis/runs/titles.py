"""What algorithms, models, data, settings and lines of runs are called."""

import math
from collections.abc import Callable

import pandas as pd

from analysis.runs import margins
from analysis.runs.experiments import ALGORITHMS

ALGORITHM_NAMES = {name: a.title for name, a in ALGORITHMS.items()}
MODEL_NAMES = {
  'mlp': 'MLP',
  'alexnet': 'AlexNet',
  'mobilenet_v2': 'MobileNetV2',
  'resnet18': 'ResNet-18',
}
DATA_NAMES = {
  'emnist.npz': 'EMNIST',
  'mnist': 'MNIST',
  'mnist_even': 'half of MNIST',
  'mnist_odd': 'the other half of MNIST',
  'embedded_digits': 'sample of MNIST',
  'cifar10': 'CIFAR-10',
}


def own_name(setting: str) -> str:
  """What data, a model or an aggregator of a user's own is called.

  Args:
    setting: As in config.json: 'folder/digits.npz', 'folder/models.py:wide', or
      a name of ours, which stays.
  """
  return setting.rsplit('/', 1)[-1]


def describe_runs(runs: pd.DataFrame) -> pd.DataFrame:
  """What runs are called beside each other, by what they differ in.

  Args:
    runs: The rows of the runs, in any order.

  Returns:
    A row for each run, in their order: `setting` (what tells its setting from
    the others; empty where there is one), `line` (as `line_labels` has it),
    `algorithm` (that without its ε) and `name`: algorithm, setting and seed, as
    far as they differ, and the index where that does not tell it apart.
  """
  parts = [part for _, part in runs.groupby('series', sort=False)]
  found = pd.DataFrame(
    {
      'setting': pd.concat(
        [
          pd.Series(setting, part.index)
          for setting, part in zip(
            setting_differences([part.iloc[0] for part in parts]),
            parts,
            strict=True,
          )
        ]
      ),
      'line': pd.concat([line_labels(part) for part in parts]),
    }
  ).loc[runs.index]
  found['algorithm'] = [
    line.replace(_epsilon_part(run), '', 1)
    for line, (_, run) in zip(found['line'], runs.iterrows(), strict=True)
  ]
  seeds = runs['seed'].map(lambda seed: f'seed {margins.number(seed, ".0f")}')
  ends = found['setting'].map(lambda setting: f', {setting}' if setting else '')
  if seeds.nunique() > 1:
    ends += ', ' + seeds
  names = found['algorithm'] + ends
  names = names.where(~names.duplicated(keep=False), found['line'] + ends)
  return found.assign(
    name=names.where(~names.duplicated(keep=False), runs.index)
  )


def setting_differences(runs: list[pd.Series]) -> list[str]:
  """What tells settings apart, of one run each; empty where there is one."""
  titles = _setting_parts(runs)
  shared = set.intersection(*map(set, titles))
  return [
    ', '.join(part for part in title if part not in shared) for title in titles
  ]


def shared_title(runs: list[pd.Series]) -> str:
  """What settings, of one run each, have in common of their titles."""
  first, *others = _setting_parts(runs)
  return ', '.join(
    part for part in first if all(part in other for other in others)
  )


def setting_titles(runs: list[pd.Series]) -> list[str]:
  """A title for each of some settings, of one run each.

  Returns:
    Model, data and split, with what tells apart those that would be equal: the
    clients and their examples, P and T, Q and the batch, the optimizer of the
    server, the learning rates, the local step, the seed, or else a number.
  """
  return [', '.join(parts) for parts in _setting_parts(runs)]


def _setting_parts(runs: list[pd.Series]) -> list[tuple[str, ...]]:
  """The parts of `setting_titles`."""
  titles = [_title(run) for run in runs]
  details: tuple[Callable[[pd.Series], str], ...] = (
    lambda run: f'{run["examples_per_client"] or math.nan:.0f} a client',
    lambda run: f'N = {margins.number(run["num_clients"], ".0f")}',
    lambda run: f'α = {margins.number(run["dirichlet_alpha"], "g")}',
    lambda run: f'{run["shards_per_client"]} shards a client',
    lambda run: f'P = {run["clients_per_round"]}, T = {run["num_rounds"]}',
    lambda run: f'Q = {run["local_steps"]}, batch = {run["batch_size"]}',
    _server_optimizer,
    lambda run: f'η_l = {margins.number(run["client_learning_rate"], "g")}',
    lambda run: f'η_g = {margins.number(run["server_learning_rate"], "g")}',
    lambda run: str(run['compute_dtype'] or 'float32'),
    _local_step,
    lambda run: str(run['loss'] or 'loss of the model'),
    lambda run: run['metric'].title,
    lambda run: f'seed {margins.number(run["seed"], ".0f")}',
  )
  for detail in details:
    told = [
      (title, detail(run)) for title, run in zip(titles, runs, strict=True)
    ]
    titles = [
      (*title, text)
      if len({other for same, other in told if same == title}) > 1
      else title
      for title, text in told
    ]
  return [
    (*title[:-1], f'{title[-1]} ({titles[: place + 1].count(title)})')
    if titles.count(title) > 1
    else title
    for place, title in enumerate(titles)
  ]


def _server_optimizer(run: pd.Series) -> str:
  name = run['server_optimizer'] or 'sgd'
  return 'SGD' if name == 'sgd' else name.capitalize()


def _local_step(run: pd.Series) -> str:
  """What clients do in a step, with its number, and what their rate becomes."""
  numbers = [
    f'{symbol} = {run[key]:g}'
    for key, symbol in (
      ('local_momentum', 'β'),
      ('proximal_mu', 'μ'),
      ('sharpness_rho', 'ρ'),
      ('fed_pd_penalty', 'η'),
    )
    if pd.notna(run[key])
  ]
  step = ' '.join([str(run['local_step'] or 'sgd').replace('_', ' '), *numbers])
  decay = run['client_rate_decay']
  return step if pd.isna(decay) or decay == 1 else f'{step}, η_l · {decay:g}^t'


def line_labels(runs: pd.DataFrame) -> pd.Series:
  """A label for each run, the same for runs that differ in the seed alone.

  A threshold that is taken from a run of the same seed differs by seed; it is
  said where runs of one seed differ in it.

  Args:
    runs: Runs of settings that differ in the seed alone.
  """
  labels = runs['algorithm_name'].copy()
  several_samplings = runs['privacy_sampling'].nunique() > 1
  for name, run in runs.iterrows():
    labels[name] += _epsilon_part(run)
    if several_samplings and _epsilon_part(run):
      labels[name] += f', {run["privacy_sampling"]}'
    if run['clips'] == 'models':
      labels[name] += f', c = {run["clipping_norm"]:.3g}'
  labels = _told_apart(labels, runs, runs['setting'])
  for name, run in runs[~runs['is_complete']].iterrows():
    labels[name] += f', {run["rounds_done"]} of {run["num_rounds"]} rounds'
  return labels


def epsilon_labels(runs: pd.DataFrame) -> pd.Series:
  """A label for each private run, the same for those of one line by ε.

  Args:
    runs: Private runs of settings that differ in the seed alone.
  """
  samplings = runs['privacy_sampling'].fillna('not known').str.replace('_', ' ')
  labels = runs['algorithm_name'] + ', ' + samplings + ' sampling'
  points = runs['setting'] + runs['epsilon_spent'].astype(str)
  return _told_apart(labels, runs, points)


def _told_apart(
  labels: pd.Series, runs: pd.DataFrame, points: pd.Series
) -> pd.Series:
  """Labels with what runs of one seed differ in.

  Args:
    labels: A label for each run.
    runs: The runs.
    points: For each run a text. Runs with one label and one text which no
      detail tells apart get their names.
  """
  details: tuple[Callable[[pd.Series], str], ...] = (
    lambda run: f'c = {margins.number(run["clipping_norm"], ".4g")}',
    lambda run: f'{run["mechanism"]} noise',
    lambda run: f'{run["privacy_accountant"]} accountant',
    lambda run: f'δ = {margins.number(run["privacy_target_delta"], "g")}',
  )
  for detail in details:
    told = pd.Series([detail(run) for _, run in runs.iterrows()], runs.index)
    differ = told.groupby([labels, runs['setting']]).transform('nunique') > 1
    # All runs of a label, so that its seeds stay together.
    labels = labels.where(~labels.isin(labels[differ]), labels + ', ' + told)
  same = pd.DataFrame({'label': labels, 'point': points}).duplicated(keep=False)
  return labels.where(~same, labels + ' (' + runs.index + ')')


def _epsilon_part(run: pd.Series) -> str:
  """What a label says of the ε of a run; empty where there is none."""
  if not run['is_private'] or not math.isfinite(run['epsilon_spent']):
    return ''
  of_examples = ' for examples' if run['privacy_unit'] == 'example' else ''
  return f', ε = {margins.at_most(run["epsilon_spent"])}{of_examples}'


def _title(run: pd.Series) -> tuple[str, ...]:
  if not run['data']:
    return ('programs of your own',)
  title = f'{run["model_name"]} on {run["data"]}'
  if run['is_iid'] or run['partition'] == 'class_balanced':
    return title, run['split']
  return title, f'{run["split"]} ({run["partition"].replace("_", " ")})'
