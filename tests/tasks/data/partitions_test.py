"""Tests of partitions.

Each client has its size and no example twice, classes are shared as the sources
say, published splits keep their bits, and clients that no person is are known.
"""

import hashlib

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tasks.data import public
from tasks.data.partitions import PartitionConfig

_BY_LABEL = ('iid', 'class_balanced', 'label_skew', 'dirichlet', 'shards')


def _split(name, labels, **settings):
  return PartitionConfig(name, **settings).split(labels)


def _natural(owners, **settings):
  return PartitionConfig('natural', **settings).split(owners, owners)


def _labels(num_classes, per_class, seed=0):
  labels = np.repeat(np.arange(num_classes), per_class)
  return np.random.default_rng(seed).permutation(labels)


def _class_counts(split, labels):
  num_classes = labels.max() + 1
  return np.stack(
    [np.bincount(labels[rows], minlength=num_classes) for rows in split.indices]
  )


@pytest.mark.parametrize('name', _BY_LABEL)
@settings(deadline=None, max_examples=25)
@given(
  num_clients=st.integers(1, 25),
  size=st.integers(1, 30),
  num_classes=st.integers(3, 12),
  class_seed=st.integers(0, 100),
  seed=st.integers(0, 2**32),
)
def test_disjoint_partition_gives_each_client_its_size_and_no_row_twice(
  name, num_clients, size, num_classes, class_seed, seed
):
  size += name == 'shards' and size % 2
  # Classes of different sizes, always with enough examples altogether.
  sizes = np.random.default_rng(class_seed).integers(40, 120, num_classes)
  labels = _labels(num_classes, sizes, class_seed)
  # A class must have what each client needs of it.
  per_class = -(-size // num_classes) * num_clients
  needed = per_class if name == 'class_balanced' else 0
  assume(num_clients * size <= len(labels) and needed <= sizes.min())
  split = _split(
    name, labels, num_clients=num_clients, examples_per_client=size, seed=seed
  )
  assert [len(rows) for rows in split.indices] == [size] * num_clients
  rows = np.concatenate(split.indices)
  assert len(set(rows.tolist())) == len(rows)
  assert rows.min() >= 0
  assert rows.max() < len(labels)
  assert not split.is_overlapping
  assert len(set(split.client_ids)) == num_clients
  assert list(split.client_ids) == sorted(split.client_ids)
  assert 'each once' in split.summary


@pytest.mark.parametrize(
  'name', ['iid', 'class_balanced', 'label_skew', 'dirichlet']
)
def test_more_draws_than_examples_overlap_between_clients_alone(name):
  labels = _labels(10, 60)
  split = _split(
    name,
    labels,
    num_clients=30,
    examples_per_client=50,
    dirichlet_alpha=10.0,
  )
  assert split.is_overlapping
  for rows in split.indices:
    assert len(rows) == 50
    assert len(set(rows.tolist())) == 50
  assert 'overlapping: 1500 draws from 600 examples' in split.summary


@pytest.mark.parametrize('name', _BY_LABEL)
def test_a_seed_gives_one_partition_as_large_as_there_is_no_overlap(name):
  first, second, other = (
    _split(name, _labels(10, 60), num_clients=10, seed=seed)
    for seed in (3, 3, 4)
  )
  np.testing.assert_array_equal(first.indices, second.indices)
  assert not np.array_equal(first.indices, other.indices)
  assert {len(rows) for rows in first.indices} == {60}
  assert first.num_used == 600


@pytest.mark.parametrize(
  ('num_clients', 'size', 'major', 'minor'),
  [
    # Sec. 4: 57.5 and 1.25 on average, as whole numbers.
    (1920, 125, {57, 58}, {1, 2}),
    # Sec. 2.2: '8 classes around 5 and 2 classes 230'.
    (480, 500, {230}, {5}),
  ],
)
def test_label_skew_is_the_papers_and_uses_every_digit_once(
  num_clients, size, major, minor
):
  # The 240,000 digits of EMNIST.
  labels = _labels(10, 24_000)
  split = _split(
    *('label_skew', labels), num_clients=num_clients, examples_per_client=size
  )
  rows = np.sort(np.concatenate(split.indices))
  np.testing.assert_array_equal(rows, np.arange(240_000))
  counts = np.sort(_class_counts(split, labels), axis=1)
  assert set(counts[:, 8:].ravel()) == major
  assert set(counts[:, :8].ravel()) == minor
  # 45 pairs, at least 10 clients each on average: none is missing but with odds
  # of 2e-3, and the seed is fixed.
  majors = np.argsort(_class_counts(split, labels), axis=1)[:, 8:]
  assert len({tuple(sorted(pair)) for pair in majors.tolist()}) == 45
  assert split.summary == (
    f'label skew with 2 major classes a client: {num_clients} clients, {size} '
    'examples each; 240000 of 240000 examples used, each once'
  )


def test_label_skew_makes_larger_classes_major_more_often():
  sizes = [100, 200, 300, 400, 500, 500]
  labels = _labels(6, sizes)
  split = _split('label_skew', labels, num_clients=100, examples_per_client=20)
  counts = _class_counts(split, labels)
  np.testing.assert_array_equal(counts.sum(axis=0), sizes)
  # All 2,000 examples are used: 20 × 46% = 9.2 from each of two classes.
  assert (np.sort(counts, axis=1)[:, -2:].sum(axis=1) >= 17).all()


@pytest.mark.parametrize(
  ('sizes', 'num_clients', 'size', 'expected', 'is_overlapping'),
  [
    # Sec. 2.2: 500 samples with 50 of each class, and 50 with 5 of each.
    ([5000] * 10, 1920, 500, np.full([1920, 10], 50), True),
    ([5000] * 10, 1920, 50, np.full([1920, 10], 5), True),
    # Clients take turns with the remainder.
    ([30] * 4, 4, 5, np.ones([4, 4]) + np.eye(4), False),
    ([30] * 4, 2, 6, [[2, 2, 1, 1], [1, 1, 2, 2]], False),
    # One class is too small.
    ([90, 10], 10, 4, np.full([10, 2], 2), True),
  ],
)
def test_class_balanced_clients_have_equally_many_of_each_class(
  sizes, num_clients, size, expected, is_overlapping
):
  labels = _labels(len(sizes), sizes)
  split = _split(
    *('class_balanced', labels),
    num_clients=num_clients,
    examples_per_client=size,
  )
  np.testing.assert_array_equal(_class_counts(split, labels), expected)
  assert split.is_overlapping == is_overlapping


def _dirichlet_counts(labels, **settings):
  return _class_counts(_split('dirichlet', labels, **settings), labels)


def test_small_alpha_gives_one_class_and_large_alpha_all():
  few, many = (
    _dirichlet_counts(
      _labels(10, 1000),
      num_clients=20,
      examples_per_client=100,
      dirichlet_alpha=alpha,
    )
    for alpha in (1e-6, 1e6)
  )
  # 20 clients of 100 use up a class of 1,000, and then take another, only if
  # 11 of them draw the same one: odds of 1e-5, and the seed is fixed.
  assert ((few > 0).sum(axis=1) == 1).all()
  # Each count is about Binomial(100, 0.1), outside of 1 to 24 with odds of
  # 6e-5 for one and 1e-2 for 200, and the seed is fixed.
  assert many.min() >= 1
  assert many.max() <= 24


def test_alpha_is_that_of_each_class():
  # Two examples of a client with shares from Dir(α, ..., α) are of the same
  # one of K classes with the probability (α + 1) / (Kα + 1).
  alpha, num_classes, size = 0.5, 10, 20
  counts = _dirichlet_counts(
    _labels(num_classes, 100_000),
    num_clients=2000,
    examples_per_client=size,
    dirichlet_alpha=alpha,
  )
  same = (counts * (counts - 1)).sum(axis=1) / (size * (size - 1))
  error = same.std() / np.sqrt(len(same))
  expected = (alpha + 1) / (num_classes * alpha + 1)
  assert abs(same.mean() - expected) < 5 * error
  # α as the sum over the classes would give 0.7.
  assert 5 * error < 0.1


def test_shards_have_at_most_one_class_each_where_they_divide_the_classes():
  labels = _labels(10, 60)
  splits = [
    _split('shards', labels, num_clients=60, shards_per_client=1, seed=seed)
    for seed in (3, 4)
  ]
  for split in splits:
    # 60 shards of 10, 6 a class.
    assert set(_class_counts(split, labels).ravel()) == {0, 10}
  # The seed decides which examples of a class make a shard.
  one, other = (
    {frozenset(rows.tolist()) for rows in split.indices} for split in splits
  )
  assert not one & other
  # Of two shards of 10, 20 of one class or 10 of two.
  split = _split('shards', labels, num_clients=30, shards_per_client=2, seed=3)
  counts = _class_counts(split, labels)
  assert set(counts.ravel()) == {0, 10, 20}
  assert set(counts.sum(axis=1)) == {20}


def test_natural_keeps_owners_together():
  owners = np.array(['b', 'a', 'b', 'c', 'a', 'b'])
  split = _natural(owners)
  assert split.client_ids == ('a', 'b', 'c')
  for rows, expected in zip(
    split.indices, ([1, 4], [0, 2, 5], [3]), strict=True
  ):
    np.testing.assert_array_equal(rows, expected)
  assert split.summary == (
    'natural: 3 clients, 1 to 3 examples (median 2); 6 of 6 examples used, '
    'each once'
  )


def test_natural_takes_some_of_the_owners():
  owners = np.repeat([f'u{i}' for i in range(20)], 3)
  split = _natural(owners, num_clients=5, seed=1)
  assert len(split.client_ids) == 5
  assert set(split.client_ids) <= set(owners)
  assert 'natural, 5 of 20 clients' in split.summary
  other = _natural(owners, num_clients=5, seed=2)
  assert split.client_ids != other.client_ids
  with pytest.raises(ValueError, match='`num_clients` .* the 20 .* found 21'):
    _natural(owners, num_clients=21)


_ROWS = np.repeat(np.arange(10), 60)


@pytest.mark.parametrize(
  ('name', 'labels', 'settings', 'words'),
  [
    ('foo', _ROWS, {}, "`partition` must be .* found 'foo'"),
    ('iid', _ROWS, dict(num_clients=None), '`num_clients` must be an integer'),
    ('iid', _ROWS, dict(num_clients=0), '`num_clients` must be .* found 0'),
    ('iid', _ROWS, dict(num_clients=601), '`num_clients` .* 600 .* found 601'),
    ('iid', _ROWS, dict(examples_per_client=601), '600 examples, found 601'),
    ('iid', _ROWS, dict(seed=-1), '`seed` must be at least 0, found -1'),
    ('iid', _ROWS[:0], {}, '`labels` must have an example, found none'),
    # 46% of 200.
    (
      *('label_skew', _ROWS, dict(num_clients=5, examples_per_client=200)),
      '`examples_per_client` .* 60 of class 0, found a need of 92',
    ),
    ('label_skew', _ROWS[:120], {}, 'at least 3 classes .* found 2'),
    ('dirichlet', _ROWS, dict(dirichlet_alpha=0), '`dirichlet_alpha` .* found'),
    ('dirichlet', _ROWS, dict(examples_per_client=601), '600 .* found 601'),
    ('dirichlet', np.zeros(60), {}, '`partition` must be iid or natural for'),
    ('shards', np.zeros([60, 2], int), {}, '`partition` .* found shards'),
    ('shards', _ROWS, dict(examples_per_client=5), '2 shards .* found 5'),
    (
      *('shards', _ROWS, dict(num_clients=61, examples_per_client=10)),
      '`examples_per_client` .* 61 clients .* 600 .* found 10',
    ),
    ('shards', _ROWS, dict(num_clients=600), '`num_clients` must be at most 3'),
    ('natural', _ROWS, {}, '`partition` must be iid, .* found natural'),
    (
      *('natural', _ROWS, dict(examples_per_client=5)),
      '`examples_per_client` must not be given',
    ),
    (
      *('iid', _ROWS, dict(held_out_clients=1)),
      '`held_out_clients` must be given for the natural partition only',
    ),
  ],
)
def test_a_split_that_cannot_be_is_refused(name, labels, settings, words):
  with pytest.raises((TypeError, ValueError), match=words):
    _split(name, labels, **dict(num_clients=2) | settings)


def _digest(split):
  digest = hashlib.sha256(','.join(split.client_ids).encode())
  for rows in split.indices:
    digest.update(rows.astype('<i8').tobytes() + b';')
  return digest.hexdigest()[:16]


@pytest.mark.parametrize(
  ('name', 'settings', 'expected'),
  [
    # The smallest row of the reproduction, and others at its size.
    (
      'label_skew',
      dict(num_clients=500, examples_per_client=8),
      'f61041b59dd7c71a',
    ),
    ('iid', dict(num_clients=500, examples_per_client=8), '66dcda34ce0f9154'),
    (
      'class_balanced',
      dict(num_clients=192, examples_per_client=50),
      '86d316d93c8f413d',
    ),
    ('dirichlet', dict(num_clients=100, seed=1), '5c8d534d07832f64'),
    ('shards', dict(num_clients=100, seed=2), 'ac42990fb33c5ac1'),
    ('natural', dict(num_clients=7, seed=3), 'e7a0d3b0131157be'),
  ],
)
def test_splits_of_published_runs_keep_their_bits(name, settings, expected):
  labels = public.read_embedded_digits()['y']
  owners = np.arange(4000) % 83
  split = PartitionConfig(name, **settings).split(labels, owners)
  assert _digest(split) == expected


@pytest.mark.parametrize(
  ('name', 'settings', 'has_owners', 'expected'),
  [
    ('natural', {}, True, False),
    ('iid', {}, False, False),
    # Clients share examples.
    ('iid', dict(examples_per_client=20), False, True),
    # The data say whose the examples are, and nobody keeps to it.
    ('iid', {}, True, True),
    # What a client holds depends on the labels of all.
    ('shards', {}, False, True),
    ('label_skew', {}, False, True),
  ],
)
def test_clients_that_nobody_is_are_known(name, settings, has_owners, expected):
  rows = np.arange(60)
  split = PartitionConfig(name, num_clients=6, **settings)
  made = split.split(rows % 3, rows % 6 if has_owners else None)
  assert made.makes_up_clients == expected
