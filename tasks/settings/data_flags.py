"""The flags of `DataFolders`, for every binary that reads data to adopt."""

from tasks.settings.data_folders import DataFolders
from tasks.settings.flags_of_settings import define_flags

define_flags(DataFolders)
