"""Sums up what it is given."""

from typing import Any


def handle(event: Any) -> dict[str, float]:
    prices = [float(price) for price in event["prices"]]
    return {"total": round(sum(prices), 2)}
