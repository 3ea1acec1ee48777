"""Tests of data of a user's own.

A client is one person, however its id is written; a test set that is not free
of privacy is known; what would be lost or misread in silence is refused.
"""

import numpy as np
import pandas as pd
import pytest

from tasks.data import own, registry
from tasks.data.partitions import PartitionConfig
from tasks.data.task import DataWarning

_NATURAL = PartitionConfig('natural')


def _arrays(**changes):
  rng = np.random.default_rng(0)
  arrays = dict(
    x=rng.normal(size=(40, 3)),
    y=np.arange(40) % 4,
    client=np.arange(40) % 5,
    x_test=rng.normal(size=(8, 3)),
    y_test=np.arange(8) % 4,
  )
  arrays.update(changes)
  return {name: a for name, a in arrays.items() if a is not None}


def _create(**arrays):
  return own.create_task('mine', _NATURAL, **arrays)


def _save(folder, **changes):
  path = folder / 'mine.npz'
  np.savez(path, **_arrays(**changes))
  return path


def test_a_file_of_arrays_is_split_by_its_clients(tmp_path):
  path = _save(tmp_path)
  created = registry.create_task('mine.npz', _NATURAL, data_dir=tmp_path)
  again = registry.create_task(str(path), _NATURAL, data_dir='elsewhere')
  assert again.compute_digest() == created.compute_digest()
  assert created.client_ids == ('0', '1', '2', '3', '4')
  assert created.num_classes == 4
  assert created.input_shape == (3,)
  assert created.train['x'].dtype == np.float32
  assert created.train['y'].dtype == np.int32
  np.testing.assert_array_equal(
    created.partition.indices[2], np.arange(2, 40, 5)
  )
  assert len(created.test['y']) == 8
  assert not created.test_is_held_out
  images = np.zeros([40, 4, 4, 1], np.uint8)
  of_bytes = own.create_task(
    'mine', _NATURAL, **_arrays(x=images, x_test=images[:8])
  )
  assert of_bytes.input_dtype == 'uint8'


def test_without_a_test_set_a_tenth_is_held_out(tmp_path):
  x = np.arange(40.0)[:, np.newaxis]
  path = _save(tmp_path, x=x, x_test=None, y_test=None)
  created = registry.create_task(str(path), _NATURAL)
  assert created.test_is_held_out
  assert (len(created.train['y']), len(created.test['y'])) == (36, 4)
  both = np.concatenate([created.train['x'], created.test['x']])
  np.testing.assert_array_equal(np.sort(both, axis=0), x)
  again = registry.create_task(str(path), _NATURAL)
  np.testing.assert_array_equal(created.test['x'], again.test['x'])


@pytest.mark.parametrize(
  ('changes', 'split', 'is_of_clients', 'classes_are_of_clients'),
  [
    (dict(), _NATURAL, False, False),
    # A label that the test set does not have.
    (dict(y_test=np.arange(8) % 3), _NATURAL, False, True),
    (dict(y_test=np.arange(8) % 3, num_classes=5), _NATURAL, False, False),
    (dict(client_test=np.arange(8)), _NATURAL, True, False),
    (dict(client_test=np.arange(8).astype(str)), _NATURAL, True, False),
    (dict(client_test=np.arange(5, 13)), _NATURAL, False, False),
    # It is of those whose data they are, whoever the clients are.
    (
      dict(client_test=np.arange(8)),
      PartitionConfig('iid', num_clients=8),
      True,
      False,
    ),
  ],
)
def test_what_is_read_from_the_clients_is_known(
  changes, split, is_of_clients, classes_are_of_clients
):
  created = own.create_task('mine', split, **_arrays(**changes))
  assert created.test_is_of_clients == is_of_clients
  assert created.classes_are_of_clients == classes_are_of_clients
  assert created.num_classes == changes.get('num_classes', 4)


def _hold_out(count=2, num_clients=None, seed=0, **changes):
  """Returns a task of 5 clients, of whom some are the test set."""
  split = PartitionConfig(
    *('natural',),
    num_clients=num_clients,
    held_out_clients=count,
    seed=seed,
  )
  arrays = dict(x=np.arange(40.0)[:, None], x_test=None, y_test=None)
  return own.create_task('mine', split, **_arrays(**arrays | changes))


def _examples(created):
  """Returns the examples of each client, and those of the test set."""
  partition, x = created.partition, created.train['x'][:, 0]
  found = {
    client_id: x[rows].tolist()
    for client_id, rows in zip(
      partition.client_ids, partition.indices, strict=True
    )
  }
  return found | {'test': created.test['x'][:, 0].tolist()}


def test_held_out_clients_are_the_test_set_and_nothing_else_is():
  created = _hold_out()
  found = _examples(created)
  assert len(found) == 3 + 1
  assert sorted(sum(found.values(), [])) == list(range(40))
  assert not created.test_is_held_out
  # They are the same whatever the seed is and however many train.
  for seed in range(5):
    fewer = _examples(_hold_out(num_clients=2, seed=seed))
    assert len(fewer) == 2 + 1
    assert fewer.items() <= found.items()
  # In place of the clients' own test examples.
  x_test = np.full([8, 1], 99.0)
  given = dict(x_test=x_test, y_test=np.zeros(8, int))
  replaced = _hold_out(**given, client_test=np.arange(8))
  assert not replaced.test_is_of_clients
  assert _examples(replaced) == found


@pytest.mark.parametrize(
  ('client_test', 'is_warned_of'),
  [(None, True), (np.arange(5, 13), True), (np.arange(8).astype(str), False)],
)
def test_a_test_set_that_held_out_clients_replace_is_warned_of(
  recwarn, client_test, is_warned_of
):
  arrays = _arrays(client_test=client_test)
  own.create_task(
    'mine', PartitionConfig('natural', held_out_clients=1), **arrays
  )
  found = [str(each.message) for each in recwarn]
  words = 'The given test set of 8 examples is not used'
  assert [words in each for each in found] == [True] * is_warned_of


def test_a_client_who_leaves_changes_one_held_out_client_at_most():
  client = np.arange(40) % 20
  whole = _examples(_hold_out(5, client=client))
  others = []
  for left in range(20):
    rows = client != left
    x, y = np.arange(40.0)[rows, None], np.zeros(38, int)
    found = _examples(
      _hold_out(5, x=x, y=y, client=client[rows], num_classes=2)
    )
    # Each has two examples, and one who trains in both trains on the same.
    others.append(len({*found['test']} - {*whole['test']}))
    assert others[-1] == (0 if str(left) in whole else 2)
    same = {*found} & {*whole} - {'test'}
    assert all(found[client_id] == whole[client_id] for client_id in same)
    assert len(same) >= 14
  assert sorted(others) == [0] * 15 + [2] * 5


def test_a_class_that_only_training_clients_have_is_known():
  client = np.arange(40) % 5
  trained = [int(client_id) for client_id in _hold_out().client_ids]
  for only, is_known in ((trained, True), ({*range(5)} - {*trained}, False)):
    created = _hold_out(y=np.isin(client, list(only)).astype(int))
    assert created.num_classes == 2
    assert created.classes_are_of_clients == is_known


@pytest.mark.parametrize('num_shared', [3, 2])
def test_a_test_set_of_training_examples_is_warned_of(recwarn, num_shared):
  x_test = np.random.default_rng(1).normal(size=(20, 3))
  arrays = _arrays(x_test=x_test, y_test=np.arange(20) % 4)
  for name in ('x', 'y'):
    arrays[f'{name}_test'][:num_shared] = arrays[name][:num_shared]
  _create(**arrays)
  found = [str(each.message) for each in recwarn]
  # More than a tenth.
  assert len(found) == (num_shared > 2)
  assert all('`x_test` has 3 of its 20 examples in' in each for each in found)


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    # Of the file, of the labels, of the ids, of the features, of the test set.
    (dict(x=None), 'must have the arrays `x` and `y`'),
    (dict(X=np.zeros(3)), 'may have client, .*, has_padding, found .*X'),
    (dict(y=np.arange(40) % 4 + 0.0), '`y` must be integers.*float64'),
    (dict(y=np.arange(40) - 1), '`y` must be classes from 0, found -1'),
    (dict(num_classes=4.0), '`num_classes` must be an integer'),
    (dict(y=np.full(40, 'a')), '`y` must be numbers.*numpy.unique'),
    (dict(client=None), '`partition` must be iid, for example, .* natural'),
    (dict(y=np.arange(39)), '`y` must have as many .* as `x`, 40, found 39'),
    (dict(client=np.arange(39)), '`client` must have as many'),
    (dict(client=np.arange(40.0)), '`client` must be integers or strings'),
    (dict(client=np.array(['a', ' \u200b'] * 20)), '`client` .* be empty'),
    (dict(client=np.arange(40) % 5 - 1), '`client` must not be negative'),
    (dict(client=np.array(['-1', 'a'] * 20)), '`client` must not be negative'),
    (dict(client=np.array(['nan', 'a'] * 20)), '`client` must not be missing'),
    (dict(client=np.array([b'\xe9', b'a'] * 20)), '`client` .* text in UTF-8'),
    (dict(x=np.zeros(40)), r'`x` must be numbers .*float64\[40\]'),
    (dict(x=np.full([40, 3], np.nan)), r'`x` .* finite .* nan at \[0, 0\]'),
    (dict(x=np.full([40, 3], 1e300)), '`x` must be finite in float32'),
    (dict(x=np.full([40, 3], 2**40)), '`x` must fit into int32'),
    (dict(x=np.full([40, 3], None)), 'allow_pickle'),
    (dict(client_test=np.arange(8.0)), '`client_test` must be integers'),
    (dict(client_test=np.arange(8), client=None), 'with client and x_test'),
    (
      dict(client_test=np.arange(8), x_test=None, y_test=None),
      '`client_test` must be given with',
    ),
    (dict(y_test=None), '`x_test` must be given with y_test'),
  ],
)
def test_arrays_that_cannot_be_used_are_refused(tmp_path, changes, words):
  with pytest.raises((TypeError, ValueError), match=words):
    registry.create_task(str(_save(tmp_path, **changes)), _NATURAL)


@pytest.mark.parametrize('missing', [None, np.nan, pd.NA, pd.NaT])
def test_ids_may_be_the_strings_of_pandas_and_none_may_be_missing(missing):
  arrays = _arrays(client=np.array(['ann', 'bob'] * 20, object))
  created = _create(**arrays)
  assert created.client_ids == ('ann', 'bob')
  arrays = _arrays(client=np.array(['a', missing] * 20, object))
  with pytest.raises(ValueError, match='`client` must not be missing, found'):
    _create(**arrays)


@pytest.mark.parametrize('dtype', [np.float64, np.int64, np.uint32])
@pytest.mark.parametrize('shape', [(40, 3), (40, 3, 1)])
def test_whole_numbers_that_float32_does_not_hold_are_warned_of(dtype, shape):
  x = np.zeros([40, 3], dtype)
  x[:, 1] = 100100037 + np.arange(40)
  x[:, 2] = 2**25
  arrays = _arrays(x=x.reshape(shape), x_test=None, y_test=None)
  words = r'^`x` .* 100100037 at \[0, 1(, 0)?\] becomes 100100040'
  with pytest.warns(DataWarning, match=words):
    _create(**arrays)


@pytest.mark.parametrize('x', [2.0**24, -(2.0**24), 3e7 + 0.5, 1e20 / 3, 2**25])
def test_other_numbers_are_not_warned_of(recwarn, x):
  _create(**_arrays(x=np.full([40, 3], x), x_test=None, y_test=None))
  assert not recwarn


def _create_rows(x, y, **changes):
  arrays = dict(client=np.arange(40) % 5, x_test=x[:8], y_test=y[:8])
  return _create(x=x, y=y, **arrays | changes)


_STEPS = np.random.default_rng(0).integers(0, 3, (40, 6))


@pytest.mark.parametrize('y', [_STEPS, (_STEPS > 1).astype(int)])
def test_0_in_rows_that_may_be_a_class_is_asked_for(y):
  x = np.random.default_rng(1).normal(size=(40, 6))
  with pytest.raises(ValueError, match='`has_padding` must be given where'):
    _create_rows(x, y)
  for has_padding in (False, True, np.array(True)):
    created = _create_rows(x, y, has_padding=has_padding)
    assert created.has_padding == has_padding
  assert not _create_rows(x, y + 1).has_padding


@pytest.mark.parametrize('part', ['y', 'y_test'])
def test_padding_alone_is_refused(part):
  y = dict(y=_STEPS, y_test=_STEPS[:8])
  y[part] = np.zeros_like(y[part])
  with pytest.raises(ValueError, match='a label that counts'):
    _create_rows(np.ones([40, 3]), **y, has_padding=True)
  assert not _create_rows(np.ones([40, 3]), **y, has_padding=False).has_padding


# What a person does not see in an id: blanks, how an accent is encoded, wide
# letters, and characters that show nothing.
_ONE_LOOK = {
  'ann': ['ann ', ' ann', 'ann\u00a0', 'ann\u200b', '\ufeffann', 'ａｎｎ'],
  'rené': ['rene\u0301'],
  'ann lee': ['ann  lee', 'ann\tlee'],
}


@pytest.mark.parametrize('encode', [np.asarray, np.char.encode])
def test_texts_that_look_the_same_are_one_client(encode):
  for look, others in _ONE_LOOK.items():
    for other in others:
      names = encode(np.array([look, other, 'bob', other] * 10))
      tested = np.array([other] * 8)
      created = _create(**_arrays(client=names, client_test=tested))
      assert created.client_ids == (*sorted([look, 'bob']),)
      assert created.test_is_of_clients


def test_ids_that_differ_in_case_alone_are_warned_of():
  with pytest.warns(DataWarning, match="'Ann' and 'ann'"):
    _create(**_arrays(client=np.array(['Ann', 'ann'] * 20)))


@pytest.mark.parametrize(
  ('one', 'other'),
  [(1, '1.0'), (1, '01'), ('1', '+1'), ('1.5', '1.50'), ('100000', '1e+05')],
)
def test_a_number_has_one_writing_in_both_parts(one, other):
  seven = 7 if isinstance(one, int) else '7'
  for names, tested in (
    ([one, seven] * 20, [other, '8'] * 4),
    ([str(one), other] * 20, ['8'] * 8),
  ):
    arrays = _arrays(client=np.array(names), client_test=np.array(tested))
    with pytest.raises(ValueError, match='an id in one way.*put a letter'):
      _create(**arrays)


def test_ids_in_hexadecimal_are_no_numbers():
  names = np.array(['1e05', '10e4'] * 20)
  assert _create(**_arrays(client=names)).num_clients == 2


def test_clients_without_examples_count_and_a_split_is_no_string():
  created = _create(**_arrays(all_clients=np.arange(9)))
  assert created.client_ids == tuple('012345678')
  rows = created.partition.indices
  assert [len(each) for each in rows] == [8] * 5 + [0] * 4
  assert rows[2].tolist() == list(range(2, 40, 5))
  with pytest.raises(ValueError, match='`all_clients` must have each id'):
    _create(**_arrays(all_clients=np.arange(4)))
  with pytest.raises(TypeError, match="`split` must be .* found 'natural'"):
    own.create_task('mine', 'natural', **_arrays())


_TABLE = """client,height,width,y,is_test
ann,1,2,0,0
bob,2,3,1,0
007,3,4,2,0
bob,4,5,0,1
"""


@pytest.mark.parametrize(
  ('before', 'after', 'words'),
  [
    (
      'client,',
      'user_id,',
      'no column `client`; its .* user_id, height, width',
    ),
    ('is_test', 'is_tset', 'no column `is_test`; .* height, width, is_tset'),
    (_TABLE, 'a,y\n0,0\n1,1\n', 'no column `client` and no `is_test`; .* a'),
  ],
)
def test_a_table_without_a_column_says_what_its_features_are(
  tmp_path, before, after, words
):
  text = _TABLE.replace(before, after).replace('ann', '8').replace('bob', '9')
  with pytest.warns(DataWarning, match=f'The table has {words}.$'):
    own.read_file(_write_table(tmp_path, text))


def _write_table(folder, text):
  path = folder / 'mine.csv'
  path.write_text(text, encoding='latin-1' if '\xe9' in text else 'utf-8')
  return path


def _table(folder, text):
  return registry.create_task(str(_write_table(folder, text)), _NATURAL)


@pytest.mark.parametrize('mark', ['', '\ufeff'])
def test_a_table_has_a_column_for_each_feature(tmp_path, mark):
  created = _table(tmp_path, mark + _TABLE)
  np.testing.assert_array_equal(created.train['x'], [[1, 2], [2, 3], [3, 4]])
  np.testing.assert_array_equal(created.train['y'], [0, 1, 2])
  np.testing.assert_array_equal(created.test['x'], [[4, 5]])
  # A client that looks like a number keeps its zeros.
  assert created.client_ids == ('007', 'ann', 'bob')


def test_what_may_be_meant_otherwise_in_a_table_is_warned_of(tmp_path):
  with pytest.warns(DataWarning, match='the id NA'):
    created = _table(tmp_path, _TABLE.replace('ann', 'NA'))
  assert created.client_ids == ('007', 'NA', 'bob')
  # A column that loses digits is called by its name.
  with pytest.warns(DataWarning, match='^`width` should be whole'):
    _table(tmp_path, _TABLE.replace('2,3,', '2,100100037,'))


@pytest.mark.parametrize(
  ('before', 'after', 'words'),
  [
    (',y,', ',label,', 'columns `y` and'),
    ('height,', ',', 'found one without.*index=False'),
    ('bob,2,3,1', 'bob,2,3,cat', "`y` must be .* found 'cat' in row 2"),
    ('007,3,4', '007,3,tall', "`width` must be .* found 'tall' in row 3"),
    ('ann,1,2', 'ann,1,', '`width` must have a value .* row 1'),
    ('ann,1,2', ',1,2', '`client` must have a value .* row 1'),
    ('bob,2,3', 'bob,2,inf', '`width` must be finite .* found inf'),
    ('bob,2,3,1', 'bob,2,3,1.5', '`y` must be integers.* example .*1.5'),
    ('is_test', 'is_test ', "must be written so.*'is_test '"),
    ('is_test', 'Is Test', "must be written so.*'Is Test'"),
    ('is_test', 'is_test\u200b', 'must be written so'),
    ('client', 'CLIENT', "column 'client' must be written .* found 'CLIENT'"),
    ('width', 'Y', "column 'y' must .* once, found 'Y', 'y'"),
    ('width', 'y', "column 'y' must .* once"),
    ('width', 'y.1', "column 'y' must .* 'y.1'"),
    ('width', 'client', "column 'client' must .* once"),
    ('bob,4', '7,4', 'must write an id in one way'),
    ('ann,1,2,0,0', 'ann,1,2,0,2', '`is_test` must be 1'),
    ('4,5,0,1', '4,5,0,0', '`is_test` must be 1'),
    ('ann,1,2,0,0', 'ann,1,2,0,0,9,9', 'longer than its'),
    (_TABLE, '', 'cannot be read'),
    ('ann', 'ann\xe9', 'cannot be read.*utf-8'),
    (_TABLE, _TABLE.lstrip().partition('\n')[0], 'must have rows'),
  ],
)
def test_tables_that_cannot_be_used_are_refused(tmp_path, before, after, words):
  with pytest.raises(ValueError, match=words):
    _table(tmp_path, _TABLE.replace(before, after))


_MODULE = """
from tasks.data import own
from tasks.data.partitions import PartitionConfig
import numpy as np

def good(split):
  return own.create_task(
    'good', split, x=np.eye(6), y=np.arange(6) % 2, client=list('aabbcc'),
    x_test=np.eye(6), y_test=np.arange(6) % 2)

def with_two_clients(split):
  return good(PartitionConfig('iid', num_clients=2))

def with_nan(split):
  task = good(split)
  task.train['x'][0] = np.nan
  return task

def arrays(split):
  return np.eye(6)

def failing(split):
  return 1 / 0

number = 3
"""


@pytest.fixture(name='make')
def _make(tmp_path):
  path = tmp_path / 'mine.py'
  path.write_text(_MODULE)
  return lambda function, split=_NATURAL: registry.create_task(
    f'{path}:{function}', split
  )


_TWO = PartitionConfig('iid', num_clients=2)
_HELD_OUT = PartitionConfig('natural', held_out_clients=1)


def test_a_function_makes_a_task_of_a_split(make):
  assert make('good').client_ids == ('a', 'b', 'c')
  assert make('good', _TWO).num_clients == 2
  assert make('good', _HELD_OUT).num_clients == 2
  # A natural one is the function's to choose.
  assert make('with_two_clients').num_clients == 2


@pytest.mark.parametrize(
  ('function', 'split', 'error', 'words'),
  [
    ('arrays', _NATURAL, TypeError, 'returns a `tasks.data.task.Task`, fou'),
    ('failing', _NATURAL, ValueError, r'ZeroDivision.*mine.py, line \d+\)'),
    ('number', _NATURAL, TypeError, 'must name a function, found 3'),
    ('missing', _NATURAL, ValueError, "no attribute 'missing'"),
    ('with_nan', _NATURAL, ValueError, '`x of train` must be finite'),
    (
      *('with_two_clients', PartitionConfig('shards', num_clients=2)),
      *(ValueError, '`partition` must be .* iid, found'),
    ),
    (
      *('with_two_clients', _HELD_OUT),
      *(ValueError, '`held_out_clients` must be .* None, found 1'),
    ),
    (
      *('with_two_clients', PartitionConfig('iid', num_clients=3)),
      *(ValueError, '`num_clients` must be .* 2, found 3'),
    ),
  ],
)
def test_functions_that_make_no_task_of_the_split_are_refused(
  make, function, split, error, words
):
  with pytest.raises(error, match=words):
    make(function, split)


@pytest.mark.parametrize(
  ('content', 'words'),
  [
    (None, 'a file that is there'),
    (lambda whole: b'hello', 'no .npz file'),
    (lambda whole: whole[: len(whole) // 2], 'no .npz file'),
  ],
)
def test_what_is_no_file_of_arrays_is_refused(tmp_path, content, words):
  path = _save(tmp_path)
  path.write_bytes(content(path.read_bytes())) if content else path.unlink()
  with pytest.raises(ValueError, match=words):
    registry.create_task(str(path), _NATURAL)


def test_numbers_are_labels_where_the_loss_is_for_them(tmp_path):
  y = np.linspace(-1, 1, 40)
  path = _save(tmp_path, y=y, y_test=y[:8])
  with pytest.raises(ValueError, match='such as mean_squared_error'):
    registry.create_task(str(path), _NATURAL)
  created = registry.create_task(str(path), _NATURAL, kinds='numbers')
  assert created.num_classes is None
  assert created.train['y'].dtype == np.float32
  # As a model gives them.
  np.testing.assert_array_equal(
    created.train['y'], y.astype(np.float32)[:, None]
  )
  assert created.label_shape == (1,)
  path = _save(tmp_path, num_classes=4)
  with pytest.raises(ValueError, match='`num_classes` must not .* found 4'):
    registry.create_task(str(path), _NATURAL, kinds='numbers')
  arrays = _arrays(y=np.full(40, np.nan), y_test=y[:8])
  with pytest.raises(ValueError, match='`y` must be finite'):
    _create(**arrays, kinds='numbers')
