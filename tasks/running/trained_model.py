"""The trained model of a run, as Keras weights.

  from tasks.running import trained_model

  model = trained_model.load('runs/fed_avg')
  logits = model(x, training=False)

`x` is as in the data: bytes of images for our models. Without `training=False`,
layers that augment or drop do so.

A run writes `model.weights.h5` at its end: the model after its last round. Of a
private run it is the model that was released, and what its epsilon is for.
"""

import dataclasses
import os
import pathlib
import types
from collections.abc import Callable

import tensorflow as tf
import tensorflow_federated as tff

from tasks.models import objective, own_models, run_models
from tasks.running.folder import RunFolder
from tff_clipping import atomic_files, storage_errors


def load(
  run_dir: str | os.PathLike,
  create_model: Callable[[tuple[int, ...], int], tf.keras.Model] | None = None,
) -> tf.keras.Model:
  """Returns the Keras model of a run, with the weights after its last round.

  Args:
    run_dir: The folder of a run that has ended.
    create_model: The function of a model of a user's own that was passed as a
      Python object; `None` if the name in config.json is enough.

  Returns:
    An uncompiled model from `x`, as it is in the data, to logits, or to what
    the run's loss takes; call it with `training=False`.

  Raises:
    ValueError: If there is no such run, it has not ended, its model cannot be
      built, for example in another folder than the run was started in, or its
      weights are not those of the model.
  """
  folder = RunFolder(run_dir)
  config = folder.read_config()
  if not folder.model.exists():
    raise ValueError(
      f'`run_dir` must be a run that has ended, found no {folder.model}.'
    )
  data = folder.read_description()['task']
  if create_model is not None:
    config = dataclasses.replace(config, model=create_model)
  model = run_models.RunModel(
    config,
    types.SimpleNamespace(**data),
    objective.create_objective(config),
  ).create_model()
  model.load_weights(folder.model)
  return model


def write(
  path: pathlib.Path,
  model: tf.keras.Model,
  weights: tff.learning.models.ModelWeights,
) -> None:
  """Writes the weights, frozen layers too, whole or not at all.

  Those of `model`, a new one of the run, are overwritten. Raises a StorageError
  if the file cannot be written.
  """
  weights.assign_weights_to(model)
  with (
    storage_errors.writing('The trained model'),
    atomic_files.replacing(path) as new,
  ):
    # Keras tells its format by the end of the name.
    written = new.with_name(f'.new.{path.name}')
    own_models.save_weights(model, written)
    os.replace(written, new)
