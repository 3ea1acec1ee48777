"""TFF's own data sets, whose clients are those of the data.

- Federated EMNIST, characters of 28×28 by writer: 3,400 writers with 62 classes
  (671,585 training and 77,483 test examples), or 3,383 with the 10 digits alone
  (341,873 and 40,832). The pixels are as TFF has them: ink on a light
  background, 255 where there is none, the inverse of MNIST and of EMNIST's own
  files.
- CIFAR-100, 500 clients with 100 images of 32×32×3 each. TFF split the 50,000
  training images by the Pachinko allocation method of Reddi et al., "Adaptive
  Federated Optimization" (2021); 10,000 are test images.
- Shakespeare, the next character of a speech by role: 715 roles with 16,068
  training and 2,356 test snippets; see `shakespeare`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tasks.data.data_set import DataSet
from tasks.data.datasets import data_files, shakespeare, tff_sqlite

_LABEL = {'label': ((), np.int64, np.int32)}


def _images(arrays: Mapping[str, np.ndarray]) -> tuple[Any, Any, Any]:
  return arrays['image'], arrays['label'], slice(None)


def _gray_images(arrays: Mapping[str, np.ndarray]) -> tuple[Any, Any, Any]:
  return arrays['pixels'][..., np.newaxis], arrays['label'], slice(None)


@dataclasses.dataclass(frozen=True)
class TffData:
  """One of TFF's data sets.

  Attributes:
    source: What it is called.
    module: That of `tff.simulation.datasets` which downloads it.
    file: The name of its file.
    features: As `tff_sqlite.read_split` takes them.
    examples: Returns `x`, `y`, and the rows of the file that they are from.
    num_classes: The number of classes.
    prefix: What stands before 'train' and 'test' in the names of its splits.
    test_is_of_clients: Whether each client's examples are split over both.
    has_padding: As of `Task`.
  """

  source: str
  module: str
  file: str
  features: Mapping[str, Any]
  examples: Callable[[Mapping[str, np.ndarray]], tuple[Any, Any, Any]]
  num_classes: int
  prefix: str = ''
  test_is_of_clients: bool = True
  has_padding: bool | None = None


_CHARACTERS = TffData(
  "TFF's federated EMNIST",
  'emnist',
  'emnist_all.sqlite',
  {'pixels': ((28, 28), np.float32, np.uint8), **_LABEL},
  _gray_images,
  num_classes=62,
  prefix='all_',
)
TFF_DATA: Mapping[str, TffData] = {
  'federated_emnist': _CHARACTERS,
  'federated_emnist_digits': dataclasses.replace(
    _CHARACTERS, num_classes=10, prefix='digits_only_'
  ),
  'cifar100': TffData(
    "TFF's federated CIFAR-100",
    'cifar100',
    'cifar100.sqlite',
    {'image': ((32, 32, 3), np.int64, np.uint8), **_LABEL},
    _images,
    num_classes=100,
    test_is_of_clients=False,
  ),
  'shakespeare': TffData(
    "TFF's Shakespeare",
    'shakespeare',
    'shakespeare.sqlite',
    {'snippets': ((), np.object_, None)},
    shakespeare.to_examples,
    num_classes=shakespeare.VOCAB_SIZE,
    has_padding=True,
  ),
}


def read_tff_data(
  name: str, data_dir: str | None = None, cache_dir: str | None = None
) -> DataSet:
  """Reads one of TFF's data sets, with its clients.

  Args:
    name: One of `TFF_DATA`.
    data_dir: Folder of the data set's file; None to download it with TFF.
    cache_dir: Folder of the downloads; None for the user's cache folder.

  Returns:
    Images uint8 [28, 28, 1] or [32, 32, 3], or tokens and labels int32 [80].

  Raises:
    data_files.DataError: If the file is missing or refused.
  """
  data = TFF_DATA[name]
  path = tff_sqlite.find_or_download(
    name, data.file, data.module, data_dir, cache_dir
  )

  def read(part: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    arrays, owners = tff_sqlite.read_split(
      path, f'{data.prefix}{part}', data.features
    )
    x, y, rows = data.examples(arrays)
    data_files.check_labels(path, y, data.num_classes)
    return x, y, owners[rows]

  x, y, owners = read('train')
  x_test, y_test, _ = read('test')
  return DataSet(
    x=x,
    y=y,
    x_test=x_test,
    y_test=y_test,
    num_classes=data.num_classes,
    source=data.source,
    owners=owners,
    test_is_of_clients=data.test_is_of_clients,
    has_padding=data.has_padding,
  )
