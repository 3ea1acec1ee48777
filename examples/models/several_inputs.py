"""A model of two inputs and two outputs, each of which has a loss."""

import pathlib
import tempfile

import numpy as np
from tff_clipping import learning, programs, runtime
import tensorflow as tf
import tensorflow_federated as tff


def _write_clients(folder: pathlib.Path) -> programs.ClientStore:
  rng = np.random.default_rng(0)
  image = rng.integers(256, size=[400, 8, 8, 1]).astype(np.uint8)
  age = rng.normal(size=[400, 1]).astype(np.float32)
  store = programs.write_client_store(
    folder,
    'two',
    {
      'image': image,
      'age': age,
      'kind': (age[:, 0] > 0).astype(np.int32),
      'size': 2 * age[:, 0],
    },
    np.split(np.arange(400), 20),
  )
  # What the model takes. TFF's models take lists, not dictionaries of outputs.
  return store.preprocess(
    lambda read: {
      'x': [tf.cast(read['image'], tf.float32) / 255, read['age']],
      'y': [read['kind'], read['size']],
    }
  )


def main() -> None:
  runtime.set_default_context()
  with tempfile.TemporaryDirectory() as folder:
    clients = _write_clients(pathlib.Path(folder))

    def model_fn():
      image, age = tf.keras.Input([8, 8, 1]), tf.keras.Input([1])
      flat = tf.keras.layers.Flatten()(image)
      both = tf.keras.layers.Concatenate()([flat, age])
      kind, size = (
        tf.keras.layers.Dense(2)(both),
        tf.keras.layers.Dense(1)(both),
      )
      return tff.learning.models.from_keras_model(
        tf.keras.Model([image, age], [kind, size]),
        loss=[
          tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
          tf.keras.losses.MeanSquaredError(),
        ],
        loss_weights=[1.0, 0.1],
        input_spec=tf.nest.map_structure(
          lambda spec: tf.TensorSpec([None, *spec.shape], spec.dtype),
          clients.element_spec,
        ),
      )

    process = learning.build_fed_avg(
      model_fn,
      local_steps=20,
      batch_size=20,
      client_learning_rate=0.1,
      client_store=clients,
    )
    state = process.initialize()
    for _ in range(40):
      state = process.next(state, list(clients.client_ids)).state
  _, _, of_size, _ = process.get_model_weights(state).trainable
  print(f'size grows by {of_size[-1, 0]:.1f} with age')


if __name__ == '__main__':
  main()
