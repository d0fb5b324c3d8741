"""Ends at import: its pool runs on without it."""

raise RuntimeError("the settings of this function are missing")
