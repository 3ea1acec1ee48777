"""The tasks of the paper: data, partitions, models and training runs."""
