"""Tests of tff_clipping.privacy.calculator.planned_runs."""

import json
import re

import pytest

from tests.privacy.budget_commands import (
  ONE_ROUND,
  PAPER,
  ask,
  check_refused,
  run_here,
)
from tests.privacy.paper import build_plan, compose_plans
from tff_clipping import privacy
from tff_clipping.privacy.accounting import rounding

FLAGS = (*PAPER, '--num_rounds=20', '--noise_multiplier=1.5')
PLANS = [
  build_plan(num_rounds=num_rounds, noise_multiplier=noise)
  for num_rounds, noise in ((1, 3.0), (20, 1.5), (5, 2.0))
]
FIXED = build_plan(num_rounds=10, noise_multiplier=4.0, sampling='fixed_size')


@pytest.fixture(name='files')
def _files(capsys, tmp_path):
  """Returns an answer in JSON, a plan as of a run, and flags."""
  answer = tmp_path / 'answer.json'
  answer.write_text(json.dumps(ask(capsys, *ONE_ROUND)))
  flags = tmp_path / 'second.flags'
  flags.write_text('\n'.join(FLAGS))
  plan = tmp_path / 'privacy.json'
  plan.write_text(
    json.dumps({**privacy.plan_to_json(PLANS[2]), 'aggregation': {}})
  )
  return [str(answer), str(flags), str(plan)]


def test_files_of_all_kinds_are_added_up(capsys, files):
  answer = ask(capsys, f'--together={",".join(files)}')
  expected = compose_plans(PLANS)
  together = answer['together']
  assert together['epsilon'] == pytest.approx(expected.epsilon, rel=1e-9)
  assert together['num_releases'] == 26
  assert [each['source'] for each in answer['plans']] == files
  by_pld = compose_plans(PLANS, accountant='pld').epsilon
  assert together['epsilon_by_pld'] == by_pld < together['epsilon']
  code, out, err = run_here(capsys, f'--together={",".join(files)}')
  assert (code, err) == (0, '')
  assert f'({rounding.format_up(expected.epsilon)}, 1e-05)' in out
  assert f'It is epsilon {rounding.format_up(by_pld)} by ' in out
  assert 'which is proved too: --accountant=pld.' in out
  assert 'were fixed before the first run began' in out


def test_the_question_of_the_flags_is_added_too(capsys, files):
  answer = ask(capsys, *FLAGS, f'--together={files[0]}', '--accountant=pld')
  assert [each['source'] for each in answer['plans']] == [files[0], 'the flags']
  expected = compose_plans(PLANS[:2], accountant='pld')
  assert answer['together']['epsilon'] == pytest.approx(expected.epsilon)


@pytest.mark.parametrize(
  'question',
  [
    # The cohort is the population, or is solved for.
    ('--sampling=none', '--num_clients=80', '--noise_multiplier=9'),
    ('--num_clients=1920', '--noise_to_clients_ratio=1', '--target_epsilon=9'),
  ],
)
def test_a_question_without_a_cohort_is_added_too(capsys, files, question):
  rest = '--num_rounds=2', '--target_delta=1e-5'
  answer = ask(capsys, *question, *rest, f'--together={files[0]}')
  assert [each['source'] for each in answer['plans']] == [files[0], 'the flags']
  assert answer['together']['num_releases'] == 3


def test_files_within_a_file_of_flags_are_refused(capsys, files):
  with open(files[1], 'a') as flags:
    flags.write(f'\n--together={files[0]}')
  message = '--together must not be in a file of flags, found it in '
  check_refused(capsys, message, f'--together={files[1]}')


def test_each_run_alone_costs_less_than_all_of_them(capsys, tmp_path):
  # By 'rdp', the first alone has more than both have by 'pld'.
  paths = []
  for name, plan in zip('ab', PLANS, strict=False):
    paths.append(tmp_path / name)
    paths[-1].write_text(json.dumps(privacy.plan_to_json(plan)))
  flags = f'--together={",".join(map(str, paths))}'
  for accountant in ('rdp', 'pld'):
    answer = ask(capsys, flags, f'--accountant={accountant}')
    alone = [each['epsilon'] for each in answer['plans']]
    assert max(alone) < answer['together']['epsilon'] < sum(alone)


def test_what_is_no_plan_is_one_line(capsys, tmp_path):
  (tmp_path / 'other').write_text('{"format": 7}')
  (tmp_path / 'damaged').write_text('{"plan"')
  for name, message in (
    ('none', '--together must be files that can be'),
    ('other', '--together must be plans, found another file'),
    ('damaged', '--together must be plans, found another file'),
  ):
    check_refused(capsys, message, f'--together={tmp_path / name}')


@pytest.mark.parametrize(
  ('plan', 'of_the_run', 'said'),
  [
    (
      PLANS[0],
      {'caveats': ['a seed is known']},
      'No guarantee as it was run: ',
    ),
    (
      PLANS[0],
      {'with_clipping_norm': 'Told.'},
      'Not counted here, of .*: Told',
    ),
    (FIXED, {}, r'proved too \(but for noise in integers\): --accountant=pld'),
  ],
)
def test_what_limits_a_promise_is_said(
  capsys, tmp_path, plan, of_the_run, said
):
  path = tmp_path / 'privacy.json'
  path.write_text(json.dumps(privacy.plan_to_json(plan) | of_the_run))
  _, out, _ = run_here(capsys, f'--together={path}')
  assert re.search(said, out)
  assert out.startswith('No guarantee') == ('caveats' in of_the_run)
