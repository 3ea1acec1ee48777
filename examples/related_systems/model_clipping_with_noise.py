"""Model clipping with noise (Wei et al. 2020), beside difference clipping.

  python -m examples.related_systems.model_clipping_with_noise --data_dir=DIR

What it shows: clients that clip the whole model, and not its difference to the
global model, need noise in proportion to the length of a model. c is 9 here,
half of the norm of the initial model, where clipped updates have 0.37. The
noise on the mean then is 15 times as long as c, and nothing is learnt.

What it promises: (ε, δ) to each client, for replacing all of its data, against
everybody who sees the models. Clients send clip(x_i, c). Replacing a client
moves the sum by at most 2 c, whatever the global model is.

What it does not promise: anything against the server, which sees each model.
The sum is divided by P, so the cohort has exactly P clients: of n others the
model itself would be multiplied by n / P. The cohorts are a secret: a real run
draws their seed afresh, and tells nobody. Here `--seed` gives it.
"""

from tff_clipping import aggregators, learning, privacy, programs

from examples.related_systems import setting

# Test accuracies on MNIST, three seeds, by ε.
_PUBLISHED = {1.5: '6.39 ± 4.41 %', 5.0: '9.83 ± 2.83 %'}
_COMMIT = '44967cd3'
_DELTA = 1e-5
# About half of the norm of the initial model, 18.4.
_CLIPPING_NORM = 9.0
_DIGITS = setting.Scale('embedded_digits', 5, 500, 20, 8, 8, 8, 0.1)


def main(argv: list[str] | None = None) -> None:
  flags = setting.parser().parse_args(argv)
  scale = setting.MNIST if flags.data_dir else _DIGITS
  run = setting.Setting(flags, scale)
  # z for T samples of exactly P of N clients, each of sensitivity 2 c.
  plan = privacy.PrivacyPlan.from_target_epsilon(
    num_clients=scale.num_clients,
    clients_per_round=scale.clients_per_round,
    num_rounds=scale.num_rounds,
    target_epsilon=flags.epsilon,
    target_delta=_DELTA,
    sampling='fixed_size',
    accountant='pld',
  )
  accuracy = run.train(
    programs.build_private_sampler(plan, run.task.client_ids, seed=flags.seed),
    learning.build_model_clipping_fed_avg,
    clipping_norm=_CLIPPING_NORM,
    model_aggregator=aggregators.dp_mean_factory(
      clipping_norm=_CLIPPING_NORM, **plan.aggregator_parameters._asdict()
    ),
  )
  print(
    f'model clipping with noise on {scale.task}: {accuracy:.2f} % after '
    f'{scale.num_rounds} rounds, ε = {plan.epsilon:.4g} (δ = {_DELTA:g}, z = '
    f'{plan.noise_multiplier:.3f}); published on mnist_even: '
    f'{_PUBLISHED.get(flags.epsilon, "nothing")} (commit {_COMMIT})'
  )


if __name__ == '__main__':
  main()
