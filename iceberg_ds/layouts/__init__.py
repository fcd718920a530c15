"""Pure: the partition specs and sort orders of tables: their terms, and what they make of rows."""
