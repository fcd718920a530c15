"""Fixtures of the guard."""

from __future__ import annotations

from support.service_fixtures import object_store

__all__ = ["object_store"]
