"""docstring later"""
