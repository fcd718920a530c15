"""Watching: the report on each commit, where it goes, and what follows from many of them."""
