"""The catalog of the shop: what there is to buy and for how much, as JSON."""

import json

from serving import serve

PRICES_IN_CENTS = {"apple": 40, "bread": 320, "cheese": 450, "dates": 290}


def answer(path: str) -> tuple[str, str] | None:
    name = path.removeprefix("/products/")
    if path == "/products":
        found: dict[str, object] = {"release": "v2", "prices_in_cents": PRICES_IN_CENTS}
    elif name in PRICES_IN_CENTS:
        found = {"release": "v2", "product": name, "price_in_cents": PRICES_IN_CENTS[name]}
    else:
        return None
    return "application/json", json.dumps(found) + "\n"


if __name__ == "__main__":
    serve(answer)
