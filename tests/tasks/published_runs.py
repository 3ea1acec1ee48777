"""The published runs that this version can make again."""

import json
import pathlib
from typing import Any

_RUNS = pathlib.Path(__file__).parents[2] / 'results' / 'runs.jsonl'

# Algorithms and variants that went in 0.3.0; commit 44967cd3 makes their runs.
_GONE_ALGORITHMS = {
  *('dp_model_clipping_fed_avg', 'dp_steps_fed_avg'),
  'local_dp_fed_avg',
}
_GONE_VARIANTS = {
  *('threshold', 'expected_norms', 'smooth', 'smooth_cifar10'),
  'dp_sgd',
  # In their place, noise_of_80.
  *('noise_0.147', 'noise_0.0881', 'noise_0.1727', 'noise_0.1912'),
  'noise_0.1057',
}


def read() -> dict[str, Any]:
  """Returns their config.json, by the names of their folders."""
  lines = map(json.loads, _RUNS.read_text(encoding='utf-8').splitlines())
  return {
    line['name']: line['config']
    for line in lines
    if line['config']['run']['algorithm'] not in _GONE_ALGORITHMS
    and _GONE_VARIANTS.isdisjoint(line['config']['run']['variants'])
  }
