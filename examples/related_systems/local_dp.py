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
"""

import math

from tff_clipping import aggregators, privacy, programs

from examples.related_systems import setting

# Test accuracies on MNIST, three seeds, by ε.
_PUBLISHED = {1.5: '13.80 ± 5.45 %', 5.0: '32.70 ± 9.52 %'}
_COMMIT = '44967cd3'
_DELTA = 1e-5
_DIGITS = setting.Scale('embedded_digits', 24, 480, 20, 8, 8, 8, 0.1, 0.2)


def main(argv: list[str] | None = None) -> None:
  flags = setting.parser().parse_args(argv)
  scale = setting.MNIST if flags.data_dir else _DIGITS
  run = setting.Setting(flags, scale)
  cohort = scale.clients_per_round
  # A client reports once in so many rounds.
  min_separation = scale.num_clients // cohort
  k = math.ceil(scale.num_rounds / min_separation)
  z = (
    2 * math.sqrt(k) * privacy.gaussian_noise_multiplier(flags.epsilon, _DELTA)
  )
  epsilon = privacy.gaussian_epsilon(z / (2 * math.sqrt(k)), _DELTA)
  accuracy = run.train(
    programs.RoundRobinSampler(
      run.task.client_ids,
      clients_per_round=cohort,
      min_separation=min_separation,
      seed=flags.seed,
    ),
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
  print(
    f'local DP on {scale.task}: {accuracy:.2f} % after {scale.num_rounds} '
    f'rounds, ε = {epsilon:.4g} (δ = {_DELTA:g}, z = {z:.3f}, k = {k}); '
    f'published on mnist_even: {_PUBLISHED.get(flags.epsilon, "nothing")} '
    f'(commit {_COMMIT})'
  )


if __name__ == '__main__':
  main()
