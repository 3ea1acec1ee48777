"""Keeps Keras models whole that were made before a process is built.

A layer that is made inside of a graph, as TFF makes the layers of a model,
turns its whole class into one of TensorFlow 1: Keras changes the base classes
of the class. From then on, all layers and models of the class that were made
outside of a graph are refused ("Your Layer or Model is in an invalid state"),
called or not, until one more of them is made outside of a graph.
"""

import functools
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import tensorflow as tf

_Arguments = ParamSpec('_Arguments')
_Built = TypeVar('_Built')


def kept(build: Callable[_Arguments, _Built]) -> Callable[_Arguments, _Built]:
  """Returns a builder that leaves Keras' classes as it finds them.

  Args:
    build: Makes Keras models inside of graphs, and uses them there alone.
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
