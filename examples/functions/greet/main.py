"""Two functions in one artifact; they share `words`, which no other artifact sees."""

import os
from typing import Any

from . import words


def greet(event: Any) -> dict[str, str]:
    name = (event or {}).get("name", "you")
    return {"text": f"{words.HELLO[os.environ.get('LANGUAGE', 'en')]}, {name}"}


async def echo(event: Any) -> Any:
    return event
