"""`iceberg-ds check`: tries what a write needs, and leaves nothing behind."""
