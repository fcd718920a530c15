"""What is done with Spark's own means: rows are moved to tasks, sessions and Python workers are set up."""
