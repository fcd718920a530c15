"""Proves a table whole, by whomever it was written, and finds the files that nothing refers to."""
