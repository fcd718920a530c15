"""The recipes of `examples/` are run as their users run them; the servers stop with the last test."""
