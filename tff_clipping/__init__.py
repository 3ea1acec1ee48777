"""Client-level differential privacy and clipping for TensorFlow Federated."""
