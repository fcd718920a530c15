"""Pure: Spark's, Arrow's and the table's columns: what fits into what, and what has to change."""
