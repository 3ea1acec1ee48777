"""Moves last bits, as another processor does: `pytest -p tests.last_bits`.

Two processors, or two versions of a library, agree to the last bit on what IEEE
754 defines: +, -, *, / and the square root. They do not on exp, log and the
special functions, on sums and products of arrays, whose order is free, and on
all that is built of these, up to what an optimiser finds. This plugin moves the
results of such functions by -1, 0 or +1 unit in the last place. What fails with
it compares closer than floats can be compared, or decides by a last bit.

A move depends on the seed, the function and the result alone, so that a
function stays one: what is computed twice alike is equal. Not moved is what is
the same everywhere:

*   integers, zeros, infinities and NaN;
*   results that need half the significant bits of their type, as exp(0), log2
    of a power of 2, or the CDF at 0 do: they are exact;
*   results that are one of the arguments: x^1, a root at the end of a bracket;
*   a sum of such short numbers, of which no order makes another, or of two
    numbers; a product of arrays with one term.

What cannot be moved from Python: operators (`a @ b`, `a ** b`), methods of
arrays (`a.sum()`), compiled code and TensorFlow's kernels, and the programs
that tests start. To run on older instruction sets reaches these.
"""

import contextlib
import functools
import math
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.fft
import scipy.integrate
import scipy.linalg
import scipy.optimize
import scipy.special

with contextlib.suppress(ImportError):
  import ml_dtypes  # noqa: F401  Takes NumPy's own functions, for TensorFlow.

_MATH = (
  'acos acosh asin asinh atan atan2 atanh cbrt cos cosh erf erfc exp exp2 '
  'expm1 gamma lgamma log log10 log1p log2 pow sin sinh tan tanh'
)
_NUMPY = (
  'arccos arccosh arcsin arcsinh arctan arctan2 arctanh cbrt cos cosh exp exp2 '
  'expm1 float_power hypot log log10 log1p log2 logaddexp logaddexp2 power sin '
  'sinh std tan tanh var'
)
_SUMS = 'average mean sum'
_PRODUCTS = 'convolve dot einsum inner matmul tensordot vdot'
_LINALG = (
  'cholesky det eigh eigvalsh inv lstsq norm pinv slogdet solve svd svdvals'
)
_FFT = 'fft ifft irfft rfft'
_OPTIMIZE = (
  'bisect brenth brentq minimize minimize_scalar newton ridder root_scalar '
  'toms748'
)

# What the plugin itself computes with.
_SUM = np.sum

# Multiplied by it, every bit of a result changes the highest ones.
_MIXER = 0x9E3779B97F4A7C15

# The bits that are zero in numbers of which products, and sums of many, are
# exact: half of those after the point.
_LOW_BITS = {np.dtype(np.float32): 12, np.dtype(np.float64): 26}


def pytest_addoption(parser):
  """Adds the option that chooses the moves."""
  parser.addoption(
    '--last-bits-seed', type=int, default=1, help='which last bits are moved'
  )


def pytest_configure(config):
  """Moves from here on: before tests, and what they test, are imported."""
  install(config.getoption('last_bits_seed'))


def pytest_report_header(config):
  """Says that results are moved."""
  return f'last bits: moved with seed {config.getoption("last_bits_seed")}'


def install(seed: int) -> None:
  """Replaces functions of math, NumPy and SciPy for the rest of a process."""
  special = [
    name
    for name, function in vars(scipy.special).items()
    if isinstance(function, np.ufunc)
  ]
  for module, names, is_exact in (
    (math, _MATH.split(), _is_an_argument),
    (np, _NUMPY.split(), _is_an_argument),
    (np, _SUMS.split(), _is_exact_sum),
    (np, _PRODUCTS.split(), _is_exact_product),
    (np.linalg, _LINALG.split(), None),
    (scipy.linalg, _LINALG.split(), None),
    (scipy.fft, _FFT.split(), None),
    (scipy.integrate, ['quad'], None),
    (scipy.optimize, _OPTIMIZE.split(), _is_an_argument),
    (scipy.special, [*special, 'logsumexp'], _is_an_argument),
  ):
    for name in names:
      if hasattr(module, name):  # Some are in newer versions only.
        salt = zlib.crc32(f'{seed} {module.__name__}.{name}'.encode())
        setattr(module, name, _Moved(getattr(module, name), salt, is_exact))


class _Moved:
  """A function, or a ufunc with its methods, whose results are moved."""

  def __init__(self, function: Callable, salt: int, is_exact: Callable | None):
    functools.update_wrapper(self, function, updated=())
    self._function = function
    self._salt = salt
    self._is_exact = is_exact

  def __call__(self, *args, **kwargs):
    result = self._function(*args, **kwargs)
    if kwargs.get('out') is not None:
      return result
    keep = self._is_exact is not None and self._is_exact(
      self._function, args, kwargs, result
    )
    return _move_all(result, self._salt, keep)

  def __getattr__(self, name):
    found = getattr(self._function, name)
    if name == 'outer':
      return lambda a, b: self(
        np.reshape(a, np.shape(a) + (1,) * np.ndim(b)), b
      )
    return _Moved(found, self._salt, None) if name == 'reduce' else found


def _move_all(result: Any, salt: int, keep: Any) -> Any:
  """Moves what a function returns: an array, several, or an optimum."""
  if isinstance(result, tuple):
    moved = (_move_all(part, salt, keep) for part in result)
    return getattr(type(result), '_make', type(result))(moved)
  for name in ('x', 'root'):
    if isinstance(result, scipy.optimize.OptimizeResult) and name in result:
      result[name] = move(result[name], salt, keep)
  return move(result, salt, keep)


def move(result: Any, salt: int, keep: Any = False) -> Any:
  """Returns floats with some last bits moved; anything else as it is.

  Args:
    result: A float, or an array of floats or complex numbers.
    salt: Chooses the moves, with the numbers.
    keep: Which numbers are left, besides those that are exact.
  """
  if isinstance(result, float):
    return result if keep else type(result)(_move_float(result, salt))
  if type(result) not in (np.float32, np.ndarray):
    return result
  values = np.atleast_1d(result)
  if values.dtype == np.complex128:
    parts = move(np.ascontiguousarray(values).view(np.float64), salt)
    return parts.view(np.complex128).reshape(np.shape(result))
  if values.dtype not in _LOW_BITS:
    return result
  bits = values.view(f'i{values.itemsize}')
  with np.errstate(over='ignore'):
    mixed = (bits.astype(np.uint64) ^ np.uint64(salt)) * np.uint64(_MIXER)
  steps = (mixed >> np.uint64(40)) % np.uint64(3)
  fixed = keep | _is_short(values) | ~np.isfinite(values)
  steps = np.where(fixed, 0, steps.astype(int) - 1).astype(bits.dtype)
  moved = (bits + steps).view(values.dtype).reshape(np.shape(result))
  return moved if type(result) is np.ndarray else type(result)(moved)


def _move_float(value: float, salt: int) -> float:
  """Does for one number what `move` does for an array of them, faster."""
  if value.is_integer() and abs(value) < 2.0**53 or not math.isfinite(value):
    return value
  (bits,) = struct.unpack('<Q', struct.pack('<d', value))
  if not bits % 2**26:
    return value
  bits += ((bits ^ salt) * _MIXER % 2**64 >> 40) % 3 - 1
  return struct.unpack('<d', struct.pack('<Q', bits))[0]


def _is_short(values: np.ndarray) -> np.ndarray:
  """Whether numbers are zero, whole, or have half the bits of their type."""
  bits = values.view(f'i{values.itemsize}')
  mask = bits.dtype.type(2 ** _LOW_BITS[values.dtype] - 1)
  is_whole = (values == np.rint(values)) & (np.abs(values) < 2.0**53)
  return (bits & mask == 0) | is_whole


def _is_an_argument(function, args, kwargs, result):
  """Whether results are arguments: x^1, the end of a bracket."""
  if isinstance(result, float):
    for arg in args:
      if isinstance(arg, (int, float)) and arg == result:
        return True
    return False
  numbers = (int, float, np.number, np.ndarray)
  keep = False
  for arg in args:
    if isinstance(result, numbers) and isinstance(arg, numbers):
      with contextlib.suppress(ValueError):  # They have other shapes.
        same = np.equal(result, arg)
        keep = keep | same if np.shape(same) == np.shape(result) else keep
  return keep


def _is_exact_sum(function, args, kwargs, result):
  """Whether the order of a sum is of no concern."""
  values = np.asarray(args[0])
  if values.dtype not in _LOW_BITS:
    return values.dtype.kind != 'c'  # A mean of integers is one division.
  if kwargs.get('weights') is not None:
    return False
  how = {k: v for k, v in kwargs.items() if k in ('axis', 'keepdims', 'where')}
  terms = values != 0
  count = _SUM(terms, *args[1:2], **how)
  short = _SUM(terms & _is_short(values), *args[1:2], **how)
  return (count <= 2) | (count == short)


def _is_exact_product(function, args, kwargs, result):
  """Whether each entry is a sum of exact products, or of one product."""
  first = 1 if isinstance(args[0], str) else 0  # That of `einsum`.
  last = len(args) if first else 2
  arrays = [np.asarray(arg) for arg in args[first:last]]
  if any(array.dtype.kind not in 'biuf' for array in arrays):
    return False
  how = {k: v for k, v in kwargs.items() if k in ('axes', 'mode')}

  def count(masks):
    return function(
      *args[:first], *(m.astype(float) for m in masks), *args[last:], **how
    )

  terms = count([array != 0 for array in arrays])
  short = count(
    [(array != 0) & _is_short(array.astype(float)) for array in arrays]
  )
  return (terms <= 1) | (terms == short)
