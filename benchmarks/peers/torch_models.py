"""The models of `tasks.models.keras_models` in PyTorch, weights from a file.

Layer by layer the same: TensorFlow's 'same' padding, group norm of two groups
with its epsilon, images of one byte scaled by the model.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn
from torch.nn import functional

_MOBILENET_V2_ROWS = (
  (1, 16, 1, 1),
  (6, 24, 2, 1),
  (6, 32, 3, 2),
  (6, 64, 4, 2),
  (6, 96, 3, 1),
  (6, 160, 3, 2),
  (6, 320, 1, 1),
)


def create_model(name: str, weights: Mapping[str, np.ndarray]) -> nn.Module:
  """Builds a model with the given weights.

  Args:
    name: mlp, alexnet, mobilenet_v2 or resnet18.
    weights: As in `benchmarks.peers.work_file.Work`.

  Returns:
    A module from uint8 images [batch, height, width, channels] to logits.
  """
  layers = _Layers(weights)
  build = {
    'mlp': _mlp,
    'alexnet': _alexnet,
    'mobilenet_v2': _mobilenet_v2,
    'resnet18': _resnet18,
  }[name]
  model = build(layers)
  layers.check_all_used()
  return nn.Sequential(_Scale(), *model)


class _Layers:
  """Makes layers in the order of the Keras model, and gives them its weights.

  Attributes:
    counts: How many layers of each kind there are.
  """

  def __init__(self, weights: Mapping[str, np.ndarray]):
    self._unused = dict(weights)
    self.counts = dict(conv=0, depthwise=0, dense=0, norm=0)

  def conv(self, filters: int, size: int, stride: int = 1) -> nn.Module:
    kernel, bias = self._take('conv', 'kernel', 'bias')
    assert kernel.shape[0] == size
    assert kernel.shape[3] == filters
    return _SameConv(kernel.transpose(3, 2, 0, 1), bias, stride, groups=1)

  def depthwise(self, stride: int) -> nn.Module:
    kernel, bias = self._take('depthwise', 'depthwise_kernel', 'bias')
    return _SameConv(
      kernel.transpose(2, 3, 0, 1), bias, stride, groups=kernel.shape[2]
    )

  def dense(self) -> nn.Module:
    kernel, bias = self._take('dense', 'kernel', 'bias')
    layer = nn.Linear(*kernel.shape)
    layer.weight.data = _tensor(kernel.T)
    layer.bias.data = _tensor(bias)
    return layer

  def norm(self) -> nn.Module:
    gamma, beta = self._take('norm', 'gamma', 'beta')
    layer = nn.GroupNorm(2, len(gamma), eps=1e-3)
    layer.weight.data = _tensor(gamma)
    layer.bias.data = _tensor(beta)
    return layer

  def check_all_used(self) -> None:
    assert not self._unused, self._unused.keys()

  def _take(self, kind: str, *names: str) -> list[np.ndarray | None]:
    number = self.counts[kind]
    self.counts[kind] += 1
    return [self._unused.pop(f'{kind}_{number}_{name}', None) for name in names]


class _Scale(nn.Module):
  """Images of bytes, channels last, to floats, channels first."""

  def forward(self, x):
    # The result is in the memory format `channels_last`, the fastest on a CPU.
    return x.permute(0, 3, 1, 2).to(torch.float32).mul_(1 / 255)


class _SameConv(nn.Conv2d):
  """A convolution with TensorFlow's padding 'same'."""

  def __init__(self, kernel, bias, stride: int, groups: int):
    out_channels, in_channels, size, _ = kernel.shape
    super().__init__(
      in_channels * groups,
      out_channels,
      size,
      stride,
      padding=size // 2 if stride == 1 else 0,
      groups=groups,
      bias=bias is not None,
    )
    self.weight.data = _tensor(kernel)
    if bias is not None:
      self.bias.data = _tensor(bias)

  def forward(self, x):
    stride, size = self.stride[0], self.kernel_size[0]
    if stride > 1 and size > 1:
      # More at the end than at the beginning, where it is uneven.
      pads = []
      for length in (x.shape[3], x.shape[2]):
        total = max((-(-length // stride) - 1) * stride + size - length, 0)
        pads.extend([total // 2, total - total // 2])
      x = functional.pad(x, pads)
    return super().forward(x)


class _Flatten(nn.Module):
  """Flattens in the order of Keras: channels last."""

  def forward(self, x):
    return x.permute(0, 2, 3, 1).flatten(1)


class _GlobalMean(nn.Module):
  def forward(self, x):
    return x.mean((2, 3))


class _Residual(nn.Module):
  """A branch and its shortcut, added."""

  def __init__(
    self, branch: nn.Module, shortcut: nn.Module, *, has_relu: bool = False
  ):
    super().__init__()
    self.branch, self.shortcut = branch, shortcut
    self.after = nn.ReLU() if has_relu else nn.Identity()

  def forward(self, x):
    return self.after(self.branch(x) + self.shortcut(x))


def _mlp(layers: _Layers) -> list[nn.Module]:
  return [_Flatten(), layers.dense(), nn.ReLU(), layers.dense()]


def _alexnet(layers: _Layers) -> list[nn.Module]:
  model = []
  rows = ((64, 2, True), (192, 1, True), (384, 1, False), (256, 1, False))
  for filters, stride, pooled in (*rows, (256, 1, True)):
    model += [layers.conv(filters, 3, stride), nn.ReLU()]
    if pooled:
      model.append(nn.MaxPool2d(2, ceil_mode=True))
  return [*model, _Flatten(), layers.dense(), nn.ReLU(), layers.dense()]


def _mobilenet_v2(layers: _Layers) -> list[nn.Module]:
  model, channels = _conv_norm(layers, 32, 3), 32
  for expansion, filters, num_blocks, first_stride in _MOBILENET_V2_ROWS:
    for block in range(num_blocks):
      stride = first_stride if block == 0 else 1
      branch = nn.Sequential(
        *_conv_norm(layers, expansion * channels, 1),
        layers.depthwise(stride),
        layers.norm(),
        nn.ReLU(),
        layers.conv(filters, 1),
        layers.norm(),
      )
      if stride != 1:
        model.append(branch)
      elif channels == filters:
        model.append(_Residual(branch, nn.Identity()))
      else:
        shortcut = nn.Sequential(layers.conv(filters, 1), layers.norm())
        model.append(_Residual(branch, shortcut))
      channels = filters
  return [*model, *_conv_norm(layers, 1280, 1), _GlobalMean(), layers.dense()]


def _resnet18(layers: _Layers) -> list[nn.Module]:
  model, channels = _conv_norm(layers, 64, 3), 64
  for stage, filters in enumerate((64, 128, 256, 512)):
    for block in range(2):
      stride = 2 if stage > 0 and block == 0 else 1
      branch = nn.Sequential(
        *_conv_norm(layers, filters, 3, stride),
        layers.conv(filters, 3),
        layers.norm(),
      )
      shortcut = nn.Identity()
      if stride != 1 or channels != filters:
        shortcut = nn.Sequential(layers.conv(filters, 1, stride), layers.norm())
      model.append(_Residual(branch, shortcut, has_relu=True))
      channels = filters
  return [*model, _GlobalMean(), layers.dense()]


def _conv_norm(
  layers: _Layers, filters: int, size: int, stride: int = 1
) -> list[nn.Module]:
  return [layers.conv(filters, size, stride), layers.norm(), nn.ReLU()]


def _tensor(array: np.ndarray) -> torch.Tensor:
  return torch.from_numpy(np.array(array, np.float32, order='C'))
