"""How settings, flags and functions of a user are declared and read."""
