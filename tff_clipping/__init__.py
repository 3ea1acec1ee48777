"""Clipping and client-level differential privacy for TensorFlow Federated."""

__version__ = '0.3.0'
