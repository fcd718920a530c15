"""What the driver does at the end of a write: from the messages of the tasks to a snapshot of the table."""
