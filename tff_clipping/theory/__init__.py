"""The paper's claims, theorems and quadratic examples in NumPy."""
