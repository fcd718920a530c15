"""Pure: why a catalog or a store could not be used, and what to do about it."""
