"""What is done with Spark's own means: rows brought to tasks, sessions and Python workers made fit."""
