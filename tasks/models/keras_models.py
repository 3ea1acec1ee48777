"""The paper's models, and the next-character model of TFF's Shakespeare.

All of them are plain stacks of Keras layers that end in logits, without
non-trainable variables, with initial weights that the seed alone decides. The
paper prints only sizes, with two or three digits; these layers have them, as
docs/data.md lists.

A model says its data format and the type of its numbers: float32, unless
Keras's global policy is a mixed one. Nothing depends on the user's keras.json.

Images of type uint8 are scaled by the model's first layer, so that clients
keep one byte a value: one channel to [0, 1], several channels to [-1, 1].
Floating-point images are taken as they are: `scale_images` makes them, once for
all steps of a client. The scaling is a constant of the type, not a statistic of
the data, so it tells nothing about any client.

Source: "Understanding Clipping for Federated Learning", Sec. 2.2 (AlexNet,
ResNet-18), Sec. 4 and Tables 3 and 4 (MLP, MobileNetV2, parameter counts).
"""

import collections
import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tasks.checks import check
from tasks.models import group_norm
from tff_clipping import argument_checks

# Departs from the paper: it names no norm layer, and the public versions of
# these networks use batch norm. Batch norm's statistics are no part of a
# client's update, so they would stay at 0 and 1 for ever, and they fail under
# label skew (Hsieh et al., ICML 2020). Group norm with two groups is what
# Reddi et al., "Adaptive Federated Optimization" (ICLR 2021, App. C), use.
_NORM_GROUPS = 2

_LAYERS, _INITIAL = tf.keras.layers, tf.keras.initializers

# (expansion, channels, blocks, stride of the first block). Source: Table 2 of
# Sandler et al., "MobileNetV2" (CVPR 2018), with stride 1 instead of 2 in the
# stem and in the second row, as is usual for images of 32×32.
_MOBILENET_V2_ROWS = (
  (1, 16, 1, 1),
  (6, 24, 2, 1),
  (6, 32, 3, 2),
  (6, 64, 4, 2),
  (6, 96, 3, 1),
  (6, 160, 3, 2),
  (6, 320, 1, 1),
)


def _image_model(
  build: Callable[['_SeededLayers', tf.Tensor], tf.Tensor],
) -> Callable[..., tf.keras.Model]:
  """Makes the function that builds a model from what precedes the logits."""

  def create(
    input_shape: Sequence[int],
    num_classes: int,
    *,
    seed: int = 0,
    input_dtype: tf.DType = tf.uint8,
  ) -> tf.keras.Model:
    """Builds a model of images.

    Args:
      input_shape: Shape of one image, [height, width, channels].
      num_classes: Number of classes, at least 2.
      seed: Decides the initial weights; the same seed gives the same weights.
      input_dtype: Type of the images; uint8 images are scaled by the model.

    Returns:
      An uncompiled model from images to logits [batch, num_classes].
    """
    must = (
      'must be one of your own, FILE.py:function, for inputs that are not '
      'images [height, width, channels] (without channels: `x[..., None]`)'
    )
    check('model', len(input_shape) == 3, must, list(input_shape))
    layers = _SeededLayers(seed)
    inputs = x = tf.keras.Input(tuple(input_shape), dtype=input_dtype)
    if not input_dtype.is_floating:
      scale, offset = _scale_and_offset(input_shape)
      x = layers.make(_LAYERS.Rescaling, scale, offset=offset)(x)
    # Before the logits: the order decides the weights.
    x = build(layers, x)
    name = build.__name__.removeprefix('create_')
    return tf.keras.Model(inputs, layers.logits(num_classes)(x), name=name)

  create.__name__ = create.__qualname__ = build.__name__
  create.__doc__ = f'{build.__doc__}\n{create.__doc__}'
  return create


@_image_model
def create_mlp(layers: '_SeededLayers', x: tf.Tensor) -> tf.Tensor:
  """Builds the two-layer perceptron with one hidden layer of 200 units.

  Source: Sec. 4, Tables 3 and 4.
  """
  x = layers.make(_LAYERS.Flatten)(x)
  return layers.dense(200, activation='relu')(x)


@_image_model
def create_alexnet(layers: '_SeededLayers', x: tf.Tensor) -> tf.Tensor:
  """Builds the seven-layer AlexNet for small images: 5 conv and 2 dense.

  Source: Sec. 2.2, Tables 2 to 4 (7 layers, 3.3M parameters).
  """
  rows = ((64, 2, True), (192, 1, True), (384, 1, False), (256, 1, False))
  for filters, strides, pooled in (*rows, (256, 1, True)):
    x = layers.conv(filters, 3, strides, use_bias=True, activation='relu')(x)
    if pooled:
      x = layers.make(_LAYERS.MaxPooling2D, 2, padding='same')(x)
  x = layers.make(_LAYERS.Flatten)(x)
  return layers.dense(1024, activation='relu')(x)


@_image_model
def create_mobilenet_v2(layers: '_SeededLayers', x: tf.Tensor) -> tf.Tensor:
  """Builds MobileNetV2 for small images, with group norm.

  A 3×3 conv, 17 inverted-residual blocks, a 1×1 conv and a dense layer. The
  four blocks of stride 1 that change the number of channels have a 1×1 conv in
  their shortcut.

  Source: Sec. 4, Table 3 (2.3M parameters).
  """
  x = _conv_norm(layers, x, 32, 3)
  for expansion, channels, num_blocks, stride in _MOBILENET_V2_ROWS:
    for block in range(num_blocks):
      x = _inverted_residual(
        layers, x, expansion, channels, stride if block == 0 else 1
      )
  x = _conv_norm(layers, x, 1280, 1)
  return layers.make(_LAYERS.GlobalAveragePooling2D)(x)


@_image_model
def create_resnet18(layers: '_SeededLayers', x: tf.Tensor) -> tf.Tensor:
  """Builds ResNet-18 for small images, with group norm.

  A 3×3 stem without max-pool, then four stages of two basic blocks of 64, 128,
  256 and 512 channels.

  Source: Sec. 2.2, Tables 2 to 4 (11.1M parameters).
  """
  x = _conv_norm(layers, x, 64, 3)
  for stage, channels in enumerate((64, 128, 256, 512)):
    x = _basic_block(layers, x, channels, 1 if stage == 0 else 2)
    x = _basic_block(layers, x, channels, 1)
  return layers.make(_LAYERS.GlobalAveragePooling2D)(x)


def create_shakespeare_lstm(
  input_shape: Sequence[int] = (80,),
  num_classes: int = 90,
  *,
  seed: int = 0,
  input_dtype: tf.DType = tf.int32,
) -> tf.keras.Model:
  """Builds the next-character model of TFF's Shakespeare baseline.

  An embedding of 8 dimensions, two LSTM layers of 256 units and a dense layer:
  820,522 parameters with the baseline's vocabulary of 90. Token 0 is padding,
  which the LSTM layers skip. The other arguments are those of the models of
  images; it returns logits [batch, characters, num_classes].

  Source: McMahan et al., "Communication-Efficient Learning of Deep Networks
    from Decentralized Data" (AISTATS 2017); `tff.simulation.baselines`.
  """
  must = 'must be [characters] for a model of sequences'
  check('input_shape', len(input_shape) == 1, must, list(input_shape))
  layers = _SeededLayers(seed)
  inputs = tf.keras.Input(tuple(input_shape), dtype=input_dtype)
  x = layers.make(
    *(_LAYERS.Embedding, num_classes, 8),
    mask_zero=True,
    embeddings_initializer=_INITIAL.RandomUniform(seed=layers.next_seed()),
  )(inputs)
  for _ in range(2):
    x = layers.make(
      *(_LAYERS.LSTM, 256),
      return_sequences=True,
      kernel_initializer=_INITIAL.HeNormal(layers.next_seed()),
      recurrent_initializer=_INITIAL.Orthogonal(seed=layers.next_seed()),
    )(x)
  return tf.keras.Model(
    inputs, layers.logits(num_classes)(x), name='shakespeare_lstm'
  )


MODELS: Mapping[str, Callable[..., tf.keras.Model]] = {
  'mlp': create_mlp,
  'alexnet': create_alexnet,
  'mobilenet_v2': create_mobilenet_v2,
  'resnet18': create_resnet18,
  'shakespeare_lstm': create_shakespeare_lstm,
}


def scale_images(
  examples: Mapping[str, tf.Tensor],
) -> collections.OrderedDict[str, tf.Tensor]:
  """Returns `x` and `y`, with uint8 images scaled as the first layer does.

  Those are [n, height, width, channels], and become float32: a model for them
  has this `input_dtype`. Other `x` stay.
  """
  scaled = collections.OrderedDict(examples)
  if scaled['x'].dtype == tf.uint8:
    scale, offset = _scale_and_offset(scaled['x'].shape)
    scaled['x'] = tf.cast(scaled['x'], tf.float32) * scale + offset
  return scaled


@dataclasses.dataclass
class _SeededLayers:
  """Layers whose initial weights the seed and their order decide."""

  seed: int
  num_drawn: int = 0

  def __post_init__(self):
    argument_checks.check_integer('seed', self.seed, at_least=0)
    policy = tf.keras.mixed_precision.global_policy()
    self.dtype = policy if policy.name.startswith('mixed_') else 'float32'

  def next_seed(self) -> int:
    # One seed a layer: equal seeds would give layers of one shape, such as the
    # blocks of a stage, equal weights.
    self.num_drawn += 1
    sequence = np.random.SeedSequence([int(self.seed), self.num_drawn])
    return int(sequence.generate_state(1)[0] >> 1)

  def make(self, layer: Any, *args, **kwargs) -> tf.keras.layers.Layer:
    """Returns a layer of which keras.json decides nothing."""
    if 'data_format' in inspect.signature(layer).parameters:
      kwargs['data_format'] = 'channels_last'
    return layer(*args, **{'dtype': self.dtype} | kwargs)

  def conv(
    self, filters: int, size: int, strides: int = 1, **kwargs
  ) -> tf.keras.layers.Layer:
    return self.make(
      *(_LAYERS.Conv2D, filters, size, strides),
      padding='same',
      kernel_initializer=_INITIAL.HeNormal(self.next_seed()),
      **{'use_bias': False} | kwargs,
    )

  def depthwise_conv(self, strides: int) -> tf.keras.layers.Layer:
    # Its kernel is [3, 3, channels, 1], so Keras takes 9 × channels for the
    # fan-in. Each output sees nine inputs: variance 2 / 9.
    return self.make(
      *(_LAYERS.DepthwiseConv2D, 3, strides),
      padding='same',
      use_bias=False,
      depthwise_initializer=_INITIAL.TruncatedNormal(
        stddev=(2 / 9) ** 0.5, seed=self.next_seed()
      ),
    )

  def dense(self, units: int, **kwargs) -> tf.keras.layers.Layer:
    initial = _INITIAL.GlorotUniform(self.next_seed())
    return self.make(_LAYERS.Dense, units, kernel_initializer=initial, **kwargs)

  def logits(self, num_classes: int) -> tf.keras.layers.Layer:
    argument_checks.check_integer('num_classes', num_classes, at_least=2)
    # The loss is in float32, whatever the other layers compute in.
    return self.dense(num_classes, dtype='float32')

  def norm(self, x: tf.Tensor) -> tf.Tensor:
    return self.make(group_norm.GroupNorm, _NORM_GROUPS)(x)

  def relu(self, x: tf.Tensor) -> tf.Tensor:
    return self.make(_LAYERS.ReLU)(x)

  def add(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return self.make(_LAYERS.Add)([x, y])


def _scale_and_offset(shape: Sequence[int]) -> tuple[float, float]:
  """Returns what bytes of images are multiplied with, and what is added."""
  return (1 / 255, 0.0) if shape[-1] == 1 else (1 / 127.5, -1.0)


def _conv_norm(
  layers: _SeededLayers, x: tf.Tensor, filters: int, size: int, strides: int = 1
) -> tf.Tensor:
  """Applies conv, norm and ReLU."""
  return layers.relu(layers.norm(layers.conv(filters, size, strides)(x)))


def _basic_block(
  layers: _SeededLayers, x: tf.Tensor, channels: int, stride: int
) -> tf.Tensor:
  """Applies a basic block of ResNet: two 3×3 convs and a shortcut."""
  y = _conv_norm(layers, x, channels, 3, stride)
  y = layers.norm(layers.conv(channels, 3)(y))
  if stride != 1 or x.shape[-1] != channels:
    x = layers.norm(layers.conv(channels, 1, stride)(x))
  return layers.relu(layers.add(x, y))


def _inverted_residual(
  layers: _SeededLayers,
  x: tf.Tensor,
  expansion: int,
  channels: int,
  stride: int,
) -> tf.Tensor:
  """Applies a block of MobileNetV2; its last conv has no ReLU."""
  y = _conv_norm(layers, x, expansion * x.shape[-1], 1)
  y = layers.relu(layers.norm(layers.depthwise_conv(stride)(y)))
  y = layers.norm(layers.conv(channels, 1)(y))
  if stride != 1:
    return y
  if x.shape[-1] != channels:
    x = layers.norm(layers.conv(channels, 1)(x))
  return layers.add(x, y)
