"""Local DP: each client noises its own update (Truex et al. 2020, "LDP-Fed").

  python -m examples.related_systems.local_dp --data_dir=DIR

What it shows: under local DP the paper's MLP learns next to nothing. The noise
on the mean of P reports is sqrt(P) times as long as that of a trusted server.

What it promises: (ε, δ) to each client, for any two updates that the client may
have, against everybody, the server included. A client clips its update to c,
adds N(0, (z c)² I) and reports the sum. Two clipped updates are at most 2 c
apart. So the k reports of one client are one Gaussian mechanism of multiplier
z / (2 sqrt(k)), also where an update depends on earlier reports (arXiv
2202.08312, Theorem 2.1), and ε is exact. Fixed groups of clients take turns,
which bounds k.

What it does not promise: that nobody knows who reports, and when. Secret
cohorts would not make ε smaller, since the server knows whose report it gets.
Whoever runs a round again asks for reports once more, and pays for them.

With `--data_dir` the run is that of docs/related.md: the even images of MNIST.
Without, it is a short run on the embedded digits.
"""

import argparse
import dataclasses
import math
import tempfile

import numpy as np
from tff_clipping import aggregators, learning, privacy, programs, runtime

from tasks.data import registry
from tasks.data.partitions import PartitionConfig
from tasks.models import keras_models, run_models

# Test accuracies on MNIST, three seeds, by ε.
_PUBLISHED = {1.5: '13.80 ± 5.45 %', 5.0: '32.70 ± 9.52 %'}
_COMMIT = '44967cd3'
_DELTA = 1e-5
# N / P: a client reports once in so many rounds.
_MIN_SEPARATION = 24


@dataclasses.dataclass(frozen=True)
class Scale:
  """The paper's T, N, Q, B, c and η_l, and a client's examples."""

  task: str
  num_rounds: int
  num_clients: int
  examples_per_client: int
  local_steps: int
  batch_size: int
  clipping_norm: float
  learning_rate: float


_MNIST = Scale('mnist_even', 96, 1920, 125, 32, 64, 0.373, 0.3)
_DIGITS = Scale('embedded_digits', 24, 480, 8, 8, 8, 0.2, 0.1)


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser()
  parser.add_argument('--data_dir', help='the folder with the files of MNIST')
  parser.add_argument('--epsilon', type=float, default=1.5)
  parser.add_argument('--seed', type=int, default=0)
  flags = parser.parse_args(argv)
  scale = _MNIST if flags.data_dir else _DIGITS
  runtime.set_default_context()
  task = registry.create_task(
    scale.task,
    PartitionConfig(
      'label_skew',
      num_clients=scale.num_clients,
      examples_per_client=scale.examples_per_client,
      seed=flags.seed,
    ),
    data_dir=flags.data_dir,
  )

  def create_model():
    return keras_models.create_mlp(
      task.input_shape, task.num_classes, seed=flags.seed
    )

  k = math.ceil(scale.num_rounds / _MIN_SEPARATION)
  z = (
    2 * math.sqrt(k) * privacy.gaussian_noise_multiplier(flags.epsilon, _DELTA)
  )
  epsilon = privacy.gaussian_epsilon(z / (2 * math.sqrt(k)), _DELTA)
  cohort = scale.num_clients // _MIN_SEPARATION
  sampler = programs.RoundRobinSampler(
    task.client_ids,
    clients_per_round=cohort,
    min_separation=_MIN_SEPARATION,
    seed=flags.seed,
  )
  with tempfile.TemporaryDirectory() as folder:
    process = learning.build_fed_avg(
      run_models.build_model_fn(create_model, task.element_spec),
      local_steps=scale.local_steps,
      batch_size=scale.batch_size,
      client_learning_rate=scale.learning_rate,
      client_store=task.write_client_store(folder),
      seed=flags.seed,
      # Exactly P clients report, each with noise of its own.
      model_aggregator=aggregators.difference_clipping_factory(
        scale.clipping_norm,
        aggregators.fixed_denominator_mean_factory(
          cohort,
          # On the sum; each client adds z c.
          aggregators.local_gaussian_noise_factory(
            math.sqrt(cohort) * z * scale.clipping_norm,
            clients_per_round=cohort,
          ),
        ),
      ),
    )
    state = process.initialize()
    for round_num in range(1, scale.num_rounds + 1):
      state = process.next(state, sampler.sample(round_num)).state
  model = create_model()
  process.get_model_weights(state).assign_weights_to(model)
  found = model.predict(task.test['x'], verbose=0).argmax(axis=1)
  print(
    f'local DP on {task.name}: {100 * np.mean(found == task.test["y"]):.2f} % '
    f'after {scale.num_rounds} rounds, ε = {epsilon:.4g} (δ = {_DELTA:g}, z = '
    f'{z:.3f}, k = {k}); published on mnist_even: '
    f'{_PUBLISHED.get(flags.epsilon, "nothing")} (commit {_COMMIT})'
  )


if __name__ == '__main__':
  main()
