"""Tests of the benchmark of hosts that are lost, without hosts."""

import subprocess

import pytest

from benchmarks import hosts


@pytest.mark.parametrize(
  ('has_programs', 'reason'),
  [
    (False, 'Skipped: there is no `ip`'),
    (True, 'Skipped: network namespaces cannot be made here (Operation not'),
  ],
)
def test_it_is_skipped_with_a_word(monkeypatch, capsys, has_programs, reason):
  def refuse(*command):
    raise subprocess.CalledProcessError(
      1, command, stderr='Operation not permitted\n'
    )

  monkeypatch.setattr(hosts.shutil, 'which', lambda name: has_programs or None)
  monkeypatch.setattr(hosts, '_run', refuse)
  monkeypatch.setattr(hosts.signal, 'signal', lambda *arguments: None)
  hosts.main([])
  assert capsys.readouterr().out.startswith(reason)
