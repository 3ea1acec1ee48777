"""Tests of what runs the measurements."""

import pytest

from benchmarks import processes


def test_the_result_is_the_last_line_of_json():
  text = 'warning\n{"a": 1}\n{"a": 2}\nfreed 3 buffers\n'
  assert processes.last_json_line(text) == '{"a": 2}'
  with pytest.raises(RuntimeError, match='No result'):
    processes.last_json_line('warning\n')


def test_a_program_gives_its_result():
  code = 'import json, os; print(json.dumps(os.environ["WHAT"].split()))'
  program = processes.Program(['-c', code], environment={'WHAT': 'a b'})
  with program:
    # A JSON string is no result; a list is.
    assert program.result() == ['a', 'b']
  assert not program.is_running


def test_a_program_that_fails_says_why():
  program = processes.Program(['-c', 'raise SystemExit("no such thing")'])
  error = r'failed \(1\)(.|\n)*no such thing'
  with program, pytest.raises(RuntimeError, match=error):
    program.result()


def test_a_program_that_hangs_is_ended():
  program = processes.Program(['-c', 'import time; time.sleep(60)'])
  with program, pytest.raises(RuntimeError, match='took more than 1 s'):
    program.result(timeout_seconds=1)
  assert not program.is_running


_ALLOCATE = """
import json, subprocess, sys, time
child = subprocess.Popen(
  [sys.executable, '-c', 'x = b"1" * 200_000_000; print(flush=True); input()'],
  stdin=subprocess.PIPE,
  stdout=subprocess.PIPE,
  text=True,
)
child.stdout.readline()
x = b'1' * 300_000_000
# Both have their memory for as long as it takes to be seen.
time.sleep(2)
child.communicate('\\n')
print(json.dumps({}))
"""


@pytest.mark.slow
def test_the_peak_is_that_of_all_processes():
  _, peak = processes.run_python_for_memory(['-c', _ALLOCATE])
  # Two interpreters of about 10 MB beside it.
  assert 500e6 < peak < 600e6
