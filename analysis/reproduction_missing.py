"""The section of docs/reproduction.md on what was not run, and why."""

import math
import statistics
from collections.abc import Sequence

from analysis import document, paper, results, rows

# Runs beyond the paper's tables: the stems of their flag files.
_MORE = {
  'table3_mlp_emnist_noniid_dp_fed_avg_paper': (
    'DP-FedAvg with a fixed P of N, charged as Poisson sampling'
  ),
  'table3_mlp_emnist_noniid_dp_fed_avg_fixed_size': (
    'DP-FedAvg with a fixed P of N, charged as such'
  ),
  'table3_mlp_emnist_noniid_model_clipping_fed_avg': 'Model clipping',
  'table3_mlp_emnist_noniid_model_clipping_fed_avg_same_threshold': (
    'Model clipping to the threshold of difference clipping'
  ),
  'same_scale_mlp_emnist_noniid_fed_avg': (
    'The MLP on MNIST at the scale of the other models'
  ),
  'same_scale_mlp_cifar10_iid_fed_avg': (
    'The MLP on CIFAR-10 at the scale of the other models'
  ),
  'longer_alexnet_emnist_iid_fed_avg': 'AlexNet on MNIST, IID, for 100 rounds',
  'longer_alexnet_emnist_noniid_fed_avg': (
    'AlexNet on MNIST, non-IID, for 100 rounds'
  ),
  'longer_alexnet_cifar10_iid_fed_avg': (
    'AlexNet on CIFAR-10, IID, for 100 rounds'
  ),
  'longer_alexnet_cifar10_noniid_fed_avg': (
    'AlexNet on CIFAR-10, non-IID, for 100 rounds'
  ),
  'paper_cohort_mlp_emnist_noniid_fed_avg': (
    'The MLP on MNIST at the paper’s P, for 20 rounds'
  ),
  'paper_cohort_alexnet_emnist_noniid_fed_avg': (
    'AlexNet on MNIST at the paper’s P, for 20 rounds'
  ),
  'paper_cohort_mlp_cifar10_iid_fed_avg': (
    'The MLP on CIFAR-10 at the paper’s P, for 20 rounds'
  ),
  'paper_cohort_alexnet_cifar10_iid_fed_avg': (
    'AlexNet on CIFAR-10 at the paper’s P, for 20 rounds'
  ),
  'longer_table3_mlp_emnist_noniid_fed_avg': (
    'The MLP of Table 3 at the scale of the other models, for 100 rounds'
  ),
  'longer_table3_alexnet_emnist_noniid_fed_avg': (
    'AlexNet of Table 3 for 100 rounds'
  ),
  'longer_table3_mobilenet_v2_emnist_noniid_fed_avg': (
    'MobileNetV2 of Table 3 for 100 rounds'
  ),
  'longer_table3_resnet18_emnist_noniid_fed_avg': (
    'ResNet-18 of Table 3 for 100 rounds, an hour'
  ),
  'mobilenet_v2_cifar10_iid_fed_avg': 'MobileNetV2 on CIFAR-10, IID',
  'mlp_mnist_writers_fed_avg': 'The natural federation',
  'mlp_embedded_digits_fed_avg': 'The smallest row',
}

# P, Q and the batch: their product is the gradients of a round.
_GRADIENTS = ('clients_per_round', 'local_steps', 'batch_size')


def missing_section(
  paper_rows: Sequence[rows.Row], runs: Sequence[results.Run]
) -> list[document.Block]:
  """What was not run, and why."""
  absent = [
    f'{row.name}: {", ".join(missing)} (`{row.command}`)'
    for row in paper_rows
    if (missing := row.missing())
  ]
  names = {run.name.rsplit('_seed', 1)[0] for run in runs if run.is_complete}
  absent += [
    # All algorithms of the row.
    f'{title} (`{rows.reproduce_command(row, [0])}`)'
    for stem, title in _MORE.items()
    if stem not in names
    for row in [stem.removesuffix('_fed_avg')]
  ]
  single = [
    row.name
    for row in paper_rows
    if row.runs('fed_avg') and len(row.runs('fed_avg')) < 3
  ]
  blocks: list[document.Block] = [
    document.Heading('What was not run, and why'),
    document.BulletList(
      (
        'The EMNIST digits themselves: the files were not at hand. '
        '`tasks/flagfiles/table3_*` and `table2_*` are ready for them.',
        'AlexNet, MobileNetV2 and ResNet-18 at the paper’s scale: a round is '
        '163,840 gradients of single examples, on 2 cores at the speed of the '
        f'rows above (batches of 4): {_full_rounds(runs)}.',
        'TFF’s federated EMNIST, CIFAR-100 and Shakespeare: the paper does not '
        'have them.',
      )
    ),
  ]
  if single:
    blocks.append(
      document.Paragraph(
        'Fewer than three seeds, for want of machine time: '
        + '; '.join(single)
        + '.'
      )
    )
  if absent:
    blocks.append(document.Paragraph('Not run, for the same reason:'))
    blocks.append(document.BulletList(tuple(absent)))
  else:
    blocks.append(
      document.Paragraph(
        'Every row of Tables 2, 3 and 4 has at least one seed of all of its '
        'algorithms.'
      )
    )
  return blocks


def _full_rounds(runs: Sequence[results.Run]) -> str:
  """How long a round at the paper's P, Q and batch would take, by model."""
  full = math.prod(paper.SETTING[key][1] for key in _GRADIENTS)
  minutes: dict[str, list[float]] = {}
  for run in runs:
    name = paper.model_name(run)
    own = math.prod(run.experiment[key] for key in _GRADIENTS)
    if run.model != 'mlp' and math.isfinite(run.median_round_seconds):
      minutes.setdefault(name, []).append(
        run.median_round_seconds * full / own / 60
      )
  return ', '.join(
    f'about {statistics.median(minutes[name]):.0f} minutes for {name}'
    for name in sorted(minutes, key=paper.model_rank)
  )
