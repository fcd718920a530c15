"""Pure: the options of a write: declared once, parsed, checked against each other and against the table."""
