"""Tests of benchmarks.arithmetic."""

import pytest

from benchmarks import arithmetic
from benchmarks.workload import WORKLOADS


def test_operations_of_the_perceptron_are_those_of_its_products():
  workload = WORKLOADS['mlp']
  batch = workload.batch_size
  hidden = 2 * batch * 784 * 200
  logits = 2 * batch * 200 * 10
  # Forwards, and by each kernel; by the hidden layer, but not by the images.
  step = 2 * hidden + 3 * logits
  expected = step * workload.local_steps * workload.clients_per_round
  found = arithmetic.count_operations(workload)
  # Activations and sums are the rest.
  assert expected < found < 1.01 * expected


@pytest.mark.slow
@pytest.mark.parametrize('name', ['alexnet', 'resnet18'])
def test_a_batch_twice_as_large_has_twice_the_operations(name):
  workload = WORKLOADS[name]
  double = workload.__class__(
    **{**vars(workload), 'batch_size': 2 * workload.batch_size}
  )
  assert arithmetic.count_operations(double) == pytest.approx(
    2 * arithmetic.count_operations(workload), rel=0.01
  )
