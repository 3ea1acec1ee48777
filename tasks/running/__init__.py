"""From what is asked for to the files of a run folder."""
