"""Keeps earlier Keras models usable after a process is built.

TFF makes the layers of a model inside a graph. Keras then changes the base
classes of each layer's class to those of TensorFlow 1. From then on Keras
refuses all layers and models of this class that were made outside a graph
("Your Layer or Model is in an invalid state"), until another one is made
outside a graph.
"""

import functools
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import tensorflow as tf

_Arguments = ParamSpec('_Arguments')
_Built = TypeVar('_Built')


def kept(build: Callable[_Arguments, _Built]) -> Callable[_Arguments, _Built]:
  """Returns a builder that does not change Keras' classes.

  Args:
    build: Makes Keras models inside graphs, and uses them only there.
  """

  @functools.wraps(build)
  def build_and_restore(
    *args: _Arguments.args, **kwargs: _Arguments.kwargs
  ) -> _Built:
    # Models are layers too, and so are metrics.
    bases = {
      each: each.__bases__ for each in _subclasses(tf.keras.layers.Layer)
    }
    try:
      return build(*args, **kwargs)
    finally:
      for each, of_before in bases.items():
        if each.__bases__ != of_before:
          each.__bases__ = of_before

  return build_and_restore


def _subclasses(of: type) -> Iterator[type]:
  for each in of.__subclasses__():
    yield each
    yield from _subclasses(each)
