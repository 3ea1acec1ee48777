"""Splits of a data set over clients."""
