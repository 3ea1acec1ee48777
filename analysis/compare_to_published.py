"""Prints runs of one's own beside the published ones of the same setting.

Command: `python -m analysis.compare_to_published RUN...`. The exit code is 1
where a figure is outside of what the spread of the published seeds allows, or
nothing is published of a run's setting.
"""

import math
import sys
from collections.abc import Sequence

import pandas as pd
from absl import app, flags

from analysis.runs import frame, margins, markdown

_PUBLISHED = flags.DEFINE_string(
  'published', 'results', 'The folder of the published runs.'
)

# What one published seed cannot say; in points.
_WITHOUT_SPREAD = 1.0

# What two runs share that differ in the seed alone. The threshold on updates is
# no part of it: it is taken from the FedAvg run of its seed.
_KEYS = ['series', 'algorithm', 'privacy_sampling', 'target_epsilon']
_KEYS += ['target_delta', 'model_norm', 'is_audited', 'variants']


def compare(runs: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
  """Returns each run beside the published runs of its setting.

  Args:
    runs: The rows of the runs to compare.
    published: The rows of the published runs; those that are not finished do
      not count.

  Returns:
    With the names of the runs as index, columns algorithm, accuracy (percent),
    published (an `Estimate`, or None), limit (how far a new seed may be from
    the published mean, in points: the 95 % prediction interval, and one point
    from one published seed) and is_within (whether it is finished and within
    the limit).
  """
  finished = published[published['is_complete']]
  keys = _keys(finished)
  lines = []
  for key, (_, run) in zip(_keys(runs), runs.iterrows(), strict=True):
    same = [found == key for found in keys]
    found = margins.estimate(finished.loc[same, 'final_score'])
    limit = math.nan
    if found is not None:
      limit = margins.prediction_margin(found)
      limit = _WITHOUT_SPREAD if math.isnan(limit) else limit
    accuracy = run['final_score']
    mean = math.nan if found is None else found.mean
    lines.append(
      {
        'algorithm': run['algorithm_name'],
        'accuracy': accuracy,
        'published': found,
        'limit': limit,
        # A figure is printed with two decimals.
        'is_within': bool(
          run['is_complete'] and abs(accuracy - mean) <= limit + 0.005
        ),
      }
    )
  return pd.DataFrame(lines, index=runs.index)


def main(argv: Sequence[str]) -> None:
  if len(argv) < 2:
    raise app.UsageError('Give at least one run folder.')
  try:
    frames = frame.read_frames(argv[1:])
    published = frame.read_results(_PUBLISHED.value).runs
  except (ValueError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    sys.exit(2)
  is_within = False
  if frames.runs.empty:
    print('error: no folder of a run was given.', file=sys.stderr)
  else:
    compared = compare(frames.runs, published)
    print(markdown.text_table(_formatted(compared)))
    is_within = compared['is_within'].all()
  for name, reason in frames.left_out:
    print(f'left out: {name}: {reason}')
  if frames.left_out or not is_within:
    sys.exit(1)


def _keys(runs: pd.DataFrame) -> list[tuple]:
  is_model = runs['clips'] == 'models'
  keyed = runs.assign(model_norm=runs['clipping_norm'].where(is_model))
  keyed = keyed.reindex(columns=_KEYS).astype(object)
  return list(keyed.where(keyed.notna(), None).itertuples(index=False))


def _formatted(compared: pd.DataFrame) -> pd.DataFrame:
  return pd.DataFrame(
    {
      'run': compared.index,
      'algorithm': compared['algorithm'],
      'this run (%)': [
        margins.number(value, '.2f') for value in compared['accuracy']
      ],
      'published (%)': [
        str(found or margins.MISSING) for found in compared['published']
      ],
      'may differ by': [
        margins.number(limit, '.2f') for limit in compared['limit']
      ],
      'within': ['yes' if yes else 'NO' for yes in compared['is_within']],
    }
  )


if __name__ == '__main__':
  app.run(main)
