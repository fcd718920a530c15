"""Proves a set-up fit (`check`) and a table whole (`verify`), and finds the files that nothing refers to."""
