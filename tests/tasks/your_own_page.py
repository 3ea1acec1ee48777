"""The files that docs/your_own.md shows."""

import pathlib
import re

from tests.tasks import train_command

# In the order of the page.
_FILES = ('make_data.py', 'mine.py', 'mine.flags', 'train.sh', 'in_python.py')


def write_files(folder: pathlib.Path) -> str:
  """Writes the files; returns what the page says that the last one prints."""
  text = (train_command.ROOT / 'docs' / 'your_own.md').read_text()
  blocks = re.findall(r'```\w*\n(.*?)```', text, flags=re.DOTALL)
  for name, content in zip(_FILES, blocks, strict=False):
    (folder / name).write_text(content)
  return blocks[len(_FILES)]
