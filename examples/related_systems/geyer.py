"""Geyer's experiment (Geyer et al. 2017), with a norm that is paid for.

  python -m examples.related_systems.geyer --data_dir=DIR --clients=1000

What it shows: client-level DP needs many clients. Each has two shards of MNIST,
sorted by label. Geyer clips to the exact median of the cohort's norms, which no
plan charges for. Here c follows a noisy median (Andrew et al. 2021), which the
plan charges for.

What it promises: (ε, δ) to each client, added or removed, against whoever gets
the models, by Poisson sampling (`PrivacyPlan`). Geyer's ε is 8.

What it does not promise: anything against the server, or against whoever knows
the seed of the cohorts, which is `--seed` here. A run that is to be private
draws a secret seed and keeps a ledger: docs/private_run.md.
"""

from tff_clipping import aggregators, privacy, programs

from examples.related_systems import setting
from examples.related_systems.setting import Scale

_EPSILON = 8.0
# By the number of clients: the scale, δ, and the test accuracy of three seeds.
_MNIST = {
  100: (Scale('mnist', 50, 100, 50, 600, 10, 10, 0.3), 1e-3, '36.76 ± 0.95 %'),
  1000: (
    Scale('mnist', 50, 1000, 200, 60, 10, 10, 0.3),
    1e-5,
    '90.37 ± 1.03 %',
  ),
  10_000: (
    Scale('mnist', 50, 10_000, 500, 6, 10, 10, 0.3),
    1e-6,
    '88.57 ± 0.24 %',
  ),
}
_DIGITS = (
  Scale('embedded_digits', 20, 100, 50, 40, 10, 10, 0.3),
  1e-3,
  'nothing',
)
_COMMIT = '44967cd3'


def main(argv: list[str] | None = None) -> None:
  parser = setting.parser()
  parser.add_argument('--clients', type=int, choices=[*_MNIST], default=100)
  parser.set_defaults(epsilon=_EPSILON)
  flags = parser.parse_args(argv)
  scale, delta, published = _MNIST[flags.clients] if flags.data_dir else _DIGITS
  if flags.epsilon != _EPSILON:
    published = 'nothing'
  run = setting.Setting(flags, scale, 'shards', shards_per_client=2)
  plan = privacy.PrivacyPlan.from_target_epsilon(
    num_clients=scale.num_clients,
    clients_per_round=scale.clients_per_round,
    num_rounds=scale.num_rounds,
    target_epsilon=flags.epsilon,
    target_delta=delta,
  )
  accuracy = run.train(
    programs.build_private_sampler(plan, run.task.client_ids, seed=flags.seed),
    model_aggregator=aggregators.adaptive_dp_mean_factory(
      initial_clipping_norm=0.5, **plan.aggregator_parameters._asdict()
    ),
  )
  print(
    f"Geyer's experiment on {scale.task}: {accuracy:.2f} % with "
    f'{scale.num_clients} clients after {scale.num_rounds} rounds, ε = '
    f'{plan.epsilon:.4g} (δ = {delta:g}, z = {plan.noise_multiplier:.3f}); '
    f'published: {published} (commit {_COMMIT})'
  )


if __name__ == '__main__':
  main()
