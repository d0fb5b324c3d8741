"""The only code that knows nats, asyncio, the clock and the environment.

A service is a value (`shared.service`); this package interprets it on NATS JetStream. What is pure in it (`encode`,
`answers`, `clock`, `sequences`, `quarantine`) does no I/O, and the simulator in `tests/simulation` uses it as it is.
"""

import importlib
import sys


def _import_without(library: str, optional: str) -> None:
    """Import a library as if another one, which it uses where it finds it, were not installed."""
    if library in sys.modules or optional in sys.modules:
        return
    sys.modules[optional] = None  # type: ignore[assignment]  # how Python is told that there is none
    try:
        importlib.import_module(library)
    finally:
        del sys.modules[optional]


# Websockets and coloured tracebacks, which nobody uses here, would be a quarter of the start of a process.
_import_without("nats", "aiohttp")
_import_without("structlog", "rich")
