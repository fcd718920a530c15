"""What the driver does before any task runs: decides, refuses, prepares the table, and makes the plan."""
