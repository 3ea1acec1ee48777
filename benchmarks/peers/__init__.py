"""The same work in other frameworks, each in an environment of its own."""
