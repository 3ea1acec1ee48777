"""Clipping and client-level differential privacy for TensorFlow Federated."""

__version__ = '0.1.0'
