"""What rounds cost, and the least noise: numbers in, numbers out."""
