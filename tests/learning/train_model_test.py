"""Tests of `build_fed_avg` inside TFF's own training program."""

import asyncio

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import computations
from tests.learning import linear_models
from tff_clipping import learning, runtime


def _train(process, client_ids, folder, num_rounds):
  """Trains by `train_model`; returns the models and the metrics released."""
  models = tff.program.MemoryReleaseManager()
  metrics = tff.program.MemoryReleaseManager()
  context = tff.program.NativeFederatedContext(
    computations.AsyncContext(runtime.InProcessContext())
  )
  with tff.framework.get_context_stack().install(context):
    asyncio.run(
      tff.learning.programs.train_model(
        train_process=process,
        train_data_source=tff.program.ClientIdDataSource(client_ids),
        train_per_round_clients=1,
        train_total_rounds=num_rounds,
        program_state_manager=tff.program.FileProgramStateManager(folder),
        model_output_manager=models,
        train_metrics_manager=metrics,
        evaluation_manager=None,
        evaluation_periodicity=1,
      )
    )
  return models.values(), metrics.values()


@pytest.mark.slow
def test_train_model_gives_the_model_of_a_loop_by_hand(tmp_path):
  process = learning.build_fed_avg(
    linear_models.model_fn,
    client_store=linear_models.write_store(tmp_path),
    measure_updates=True,
    **linear_models.WORK,
  )
  client = '00000'
  by_hand, _ = linear_models.run(process, [[client]] * 2)
  models, metrics = _train(process, [client], tmp_path / 'states', 2)
  trained = models['training_checkpoint_round_2'].global_model_weights
  np.testing.assert_array_equal(trained.trainable[0][:, 0], by_hand[-1])
  assert sorted(metrics) == [1, 2]
  # There are no training metrics; what was measured beside them is there.
  assert metrics[2]['model_metrics'] == {}
  assert set(metrics[2]['client_work']) == {'update_norm', 'angle_degrees'}
