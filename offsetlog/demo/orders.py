"""The orders of the demo: each follows from who sent it and its number.

Invariant: what was sent, and what it is worth, can be computed again from a count alone; so the
reckoning needs nothing that the log or Spark says.
"""

from __future__ import annotations

from typing import Any

TOPIC = "orders"
GROUP = "billing"
PARTITIONS = 4
CUSTOMERS = 40
FILES, SHOP = "files", "shop"
"""Who sends: JSON files through Spark's sink, and a Python program."""

WRONG = """def cents(order):
    return order["price"]
"""
RIGHT = """def cents(order):
    return order["price"] * order["pieces"]
"""


def order(source: str, number: int) -> dict[str, Any]:
    price, pieces = 100 + number * 37 % 900, 1 + number % 4
    customer = f"customer-{number % CUSTOMERS}"
    return {
        "source": source,
        "n": number,
        "customer": customer,
        "price": price,
        "pieces": pieces,
    }


def worth(source: str, count: int) -> int:
    """Cents of the first ``count`` orders."""
    orders = (order(source, number) for number in range(count))
    return sum(one["price"] * one["pieces"] for one in orders)
