"""The tasks of the paper: data, partitions, models and training runs."""

import os

# TensorFlow's start-up messages are not about the user's run. It reads the
# level when it is imported.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
