"""Files in local folders and object stores: read, written, listed, and deleted with proof. Knows no table."""
