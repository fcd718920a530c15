"""Rows of a table that are deleted and changed where they are: `delete_from`, `update`, `merge`."""
