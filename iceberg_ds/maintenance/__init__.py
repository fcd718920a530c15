"""Maintenance of tables: rewrites of files and manifests, expiry of snapshots."""
