"""Measures of speed and memory, against the bare arithmetic and stock TFF."""

import os

# Before TensorFlow is imported: no messages but errors.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
