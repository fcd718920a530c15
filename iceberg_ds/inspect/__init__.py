"""Proves that a set-up works (`check`) and a table is intact (`verify`), and finds files that nothing refers to."""
