"""Pure: predicates on rows, and the ranges of rows that a write replaces."""
