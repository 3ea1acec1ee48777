"""Tests of the words on a machine."""

from benchmarks import machine


def test_the_kind_of_processor_is_told():
  cpuinfo = 'model name\t: A kind\nflags\t: fpu avx2 avx512f amx_bf16\n'
  assert machine.processor(cpuinfo) == 'A kind'
  assert machine.instructions(cpuinfo) == 'avx2, avx512f, amx_bf16'
  assert machine.instructions('flags : fpu') == 'none'
  assert machine.headline(machine.describe())
