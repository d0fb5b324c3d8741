"""The records, one noun per file; the docstring of each names its owner."""
