"""The flags of every binary that reads data: where it is, where it goes."""

from absl import flags

DATA_DIR = flags.DEFINE_string(
  'data_dir', None, "The folder of the data's official files; else downloaded."
)
CACHE_DIR = flags.DEFINE_string(
  'cache_dir', None, 'Where downloads and client stores go; else the XDG cache.'
)
