r"""Estimates what Theorem 1 assumes of the losses, on the models of a run.

  python -m tasks.estimate_constants runs/fed_avg

Writes constants.json into the run folder, from which `analysis.report` shows
the terms of the bound by round. The estimates are at the initial model and at
those of the checkpoints that are kept, and along the clients' local steps from
them:

  smoothness      L, the largest ||grad f_i(x) - grad f_i(y)|| / ||x - y|| of
                  two models in a row: on a client's local path, and from one
                  checkpoint to the next
  gradient_bound  G, the largest norm of a stochastic gradient
  local_stddev    sigma_l, of the client with the largest: the root of the mean
                  of ||g_i - grad f_i||^2 over its local steps
  global_stddev   sigma_g, the largest ||grad f_i - grad f||
  initial_gap     f(x^0) - f*, with 0 for f*: no cross-entropy is below 0

and squared_gradient_norms, ||grad f||^2 at each of these models, whose mean
over rounds is what the theorem bounds; without the variance that comes from
measuring some clients of all.

The theorem wants bounds for all models and clients, so the first four are lower
estimates, and the last is an upper one. As in the theorem's proof f is the MEAN
of the clients' losses f_i, each with the same weight, and not their sum as in
Eq. (1); f_i is the mean over client i's training examples. The figures are
exact and no part of a private run's guarantee: such a run needs
--simulation_diagnostics.

Exit codes: 0 finished, 2 wrong arguments, 130 Ctrl-C; 1 is a failure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags

from tasks.running import run_folder
from tasks.settings import command_line, data_flags, flags_of_settings
from tasks.settings.data_folders import DataFolders

# Listed by --helpshort as this binary's own.
flags.adopt_module_key_flags(data_flags)

_ROUNDS = flags.DEFINE_list(
  'rounds', [], 'Measure at the checkpoints of these rounds; else at all.'
)
_MAX_CLIENTS = flags.DEFINE_integer(
  'max_clients', 200, 'Measure so many clients, drawn at random; at least 1.'
)


def squared_gradient_norm(
  mean_gradient: Sequence[np.ndarray],
  global_deviation: np.ndarray,
  num_clients: int,
) -> float:
  """Returns ||grad f||^2, estimated from some clients without bias.

  The mean of n gradients that are drawn from N without replacement is longer
  than grad f on average, by the variance of that mean.

  Args:
    mean_gradient: The mean of the gradients of the n clients.
    global_deviation: How far each of their gradients is from that, [n].
    num_clients: N, at least n.

  Returns:
    The estimate, and 0 where it would be less.
  """
  squared = sum(float(np.sum(np.square(g, dtype=float))) for g in mean_gradient)
  deviations = np.asarray(global_deviation, float)
  count = len(deviations)
  variance = np.sum(deviations**2) / max(count - 1, 1) / count
  return max(squared - (1 - count / num_clients) * float(variance), 0.0)


def combine(measured: Sequence[Mapping[str, np.ndarray]]) -> dict[str, float]:
  """Returns the constants of measurements at several models.

  Args:
    measured: For each model, the first being x^0, a value for each client of
      every one of `learning.gradient_estimates.MEASUREMENTS`.

  Returns:
    Those of the module's docstring; and as the two deviations, but over all
    clients, `root_mean_square_local_stddev` and
    `root_mean_square_global_stddev`.
  """
  rows = {
    name: np.array([np.asarray(m[name], np.float64) for m in measured])
    for name in measured[0]
  }
  largest = {name: float(values.max()) for name, values in rows.items()}
  return dict(
    smoothness=max(largest['local_smoothness'], largest['global_smoothness']),
    gradient_bound=largest['largest_gradient_norm'],
    local_stddev=float(np.sqrt(largest['local_variance'])),
    global_stddev=largest['global_deviation'],
    initial_gap=float(rows['loss'][0].mean()),
    root_mean_square_local_stddev=float(np.sqrt(rows['local_variance'].mean())),
    root_mean_square_global_stddev=float(
      np.sqrt(np.mean(rows['global_deviation'] ** 2))
    ),
  )


def estimate(
  folder: run_folder.RunFolder,
  *,
  rounds: Sequence[int] = (),
  max_clients: int = 200,
  folders: DataFolders | None = None,
) -> dict[str, Any]:
  """Estimates the constants of a run and writes its constants.json.

  Args:
    folder: The folder of a run with a checkpoint.
    rounds: Those of the checkpoints to measure at, beside x^0; all if there are
      none.
    max_clients: How many clients to measure at most.
    folders: Those of the data.

  Returns:
    The contents of constants.json.

  Raises:
    ValueError: If the folder is no such run, or another program has it open.
  """
  # TensorFlow takes seconds to import: a wrong folder is found before that.
  config = folder.read_config()
  from tasks.running import run_parts, run_privacy
  from tff_clipping import learning, runtime

  if not config.measures_updates:
    raise ValueError(
      '`run_dir` must be a run with `simulation_diagnostics` if it is private, '
      "since its clients' exact gradients are measured, found one without: "
      f'{folder.path}.'
    )
  if max_clients < 1:
    raise ValueError(f'`max_clients` must be at least 1, found {max_clients}.')
  parts = run_parts.create_run_parts(config, folders or DataFolders())
  plan = run_privacy.find_plan(config, parts.task.num_clients, folder)
  with folder.open(config, resume=True), folder.temporary_files():
    store = parts.write_client_store()
    clients = parts.preprocess(store)
    model_fn = parts.create_client_model_fn(clients)
    runtime.set_default_context()
    process = parts.create_process(plan, model_fn, clients)
    initial = parts.create_initial_weights()
    models = _load_models(folder, process, initial, rounds)
    client_ids = _draw_clients(store, max_clients)
    computations = learning.build_gradient_estimates(
      model_fn, **parts.local_work(clients)
    )
    measured, squared_norms = [], []
    previous = None
    for round_num, model in models.items():
      mean_gradient = computations.mean_gradient(model, client_ids)
      measured.append(
        computations.measure(
          model,
          model if previous is None else previous,
          mean_gradient,
          round_num,
          client_ids,
        )
      )
      squared_norms.append(
        squared_gradient_norm(
          mean_gradient,
          measured[-1]['global_deviation'],
          np.count_nonzero(store.num_examples),
        )
      )
      previous = model
    contents: dict[str, Any] = combine(measured) | dict(
      rounds=list(models),
      squared_gradient_norms=squared_norms,
      num_clients=len(client_ids),
      objective='f is the mean of the f_i of all clients, f* is taken to be 0',
      estimated='Lower estimates, from exact gradients of the clients, but for '
      'initial_gap, which is an upper one; for simulations only.',
    )
    folder.write_json(folder.constants, contents)
  return contents


def main(argv: Sequence[str]) -> int:
  """Estimates the constants of the run that is named; returns the exit code."""
  try:
    if len(argv) != 2:
      raise ValueError(
        f'`run_dir` must be the one argument, found {len(argv) - 1}.'
      )
    folder = run_folder.RunFolder(argv[1])
    contents = estimate(
      folder,
      rounds=flags_of_settings.integers('rounds', _ROUNDS.value),
      max_clients=_MAX_CLIENTS.value,
      folders=DataFolders(**flags_of_settings.read_flags(DataFolders)),
    )
  except (ValueError, TypeError, ModuleNotFoundError) as e:
    command_line.print_error(e)
    return 2
  except (OSError, RuntimeError) as e:
    command_line.print_error(e)
    return 1
  for name, value in contents.items():
    if isinstance(value, float):
      print(f'{name:31} {value:.4g}')
  print(
    f'{contents["num_clients"]} clients at the models after rounds '
    f'{", ".join(map(str, contents["rounds"]))}: {folder.constants}'
  )
  return 0


def _load_models(
  folder: run_folder.RunFolder, process, initial_weights, wanted: Sequence[int]
) -> dict[int, Any]:
  """Returns x^0 and the models of the checkpoints, by their rounds."""
  from tff_clipping.programs.training.checkpoints import Checkpoints

  initial = process.initialize()
  if initial_weights is not None:
    initial = process.set_model_weights(initial, initial_weights)
  checkpoints = Checkpoints(folder.checkpoints, keep=1)
  rounds = checkpoints.rounds()
  if not rounds:
    raise ValueError(
      f'`run_dir` must be a run with a checkpoint, found none in {folder.path}.'
    )
  absent = sorted(set(wanted) - {0, *rounds})
  if absent:
    raise ValueError(
      f'`rounds` must be among those of the checkpoints, {rounds}, found '
      f'{absent[0]}.'
    )
  rounds = [number for number in rounds if not wanted or number in wanted]
  models = {0: process.get_model_weights(initial)}
  for round_num in rounds:
    if round_num:
      state = checkpoints.load(round_num, initial)
      models[round_num] = process.get_model_weights(state)
  return models


def _draw_clients(store, max_clients: int) -> list[str]:
  """Returns clients with examples, the same ones for the same store."""
  candidates = [
    client_id
    for client_id, num_examples in zip(
      store.client_ids, store.num_examples, strict=True
    )
    if num_examples
  ]
  if len(candidates) <= max_clients:
    return candidates
  rng = np.random.default_rng(0)
  drawn = rng.choice(len(candidates), size=max_clients, replace=False)
  return [candidates[index] for index in sorted(drawn)]


if __name__ == '__main__':
  command_line.run(main)
