"""The data sets, and the readers of their files."""
