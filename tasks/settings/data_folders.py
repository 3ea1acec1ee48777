"""Where data is read from, and where what is made of it is kept."""

import dataclasses

from tasks.settings.setting_fields import setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFolders:
  """Folders of data; each is a flag of every binary that reads data."""

  data_dir: str | None = setting(
    "The folder of the data's official files; else downloaded.", None
  )
  cache_dir: str | None = setting(
    'Where downloads and client stores go; else the XDG cache.', None
  )
