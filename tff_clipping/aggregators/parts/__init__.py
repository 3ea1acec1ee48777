"""What the aggregation factories are made of."""
