"""The front page of the shop, with a way to the prices."""

import os

from serving import serve

PAGE = (
    "<!doctype html><title>The shop</title><h1>{greeting}</h1>"
    '<p>Second edition, <a href="/products">now with prices</a>.</p>\n'
)


def answer(path: str) -> tuple[str, str] | None:
    if path != "/":
        return None
    return "text/html", PAGE.format(greeting=os.environ.get("GREETING", "The shop"))


if __name__ == "__main__":
    serve(answer)
