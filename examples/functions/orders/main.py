"""Two functions that reach the table of orders, and so share no process with those that do not."""

import os
from typing import Any


def place(event: Any) -> dict[str, Any]:
    return {"placed": event, "by": os.environ["STEER_FUNCTION"]}


def cancel(event: Any) -> None:
    return None
