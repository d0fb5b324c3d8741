"""The catalog of the shop: what there is to buy, as JSON."""

import json

from serving import serve

PRODUCTS = ["apple", "bread", "cheese"]


def answer(path: str) -> tuple[str, str] | None:
    if path != "/products":
        return None
    return "application/json", json.dumps({"release": "v1", "products": PRODUCTS}) + "\n"


if __name__ == "__main__":
    serve(answer)
