"""Each mutation of scripts/mutations.json is one of today's files."""

import json
import pathlib

import pytest

_ROOT = pathlib.Path(__file__).parents[2]
_MUTATIONS = json.loads((_ROOT / 'scripts' / 'mutations.json').read_text())


@pytest.mark.parametrize('name', _MUTATIONS)
def test_a_mutation_changes_one_text_of_one_file(name):
  mutation = _MUTATIONS[name]
  text = (_ROOT / mutation['path']).read_text()
  assert text.count(mutation['old']) == 1
  assert mutation['new'] != mutation['old']
  for path in mutation['tests'].split():
    assert (_ROOT / path).exists()
