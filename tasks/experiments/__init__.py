"""The paper's experiments as data."""
