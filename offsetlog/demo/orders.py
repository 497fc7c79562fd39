"""The orders of the demo: sender and number determine each one.

Invariant: what was sent, and its worth, can be computed from a count alone, so the reckoning
depends on nothing that the log or Spark says.
"""

from __future__ import annotations

import json
from typing import Any

TOPIC = "orders"
GROUP = "billing"
PARTITIONS = 4
CUSTOMERS = 40
FILES = "files"
"""The sender through Spark's sink; the shops are called shop-1, shop-2 ..."""
BATCH = 50
"""Orders in a batch of a shop."""


def order(sender: str, number: int) -> dict[str, Any]:
    return {
        "sender": sender,
        "number": number,
        "customer": f"customer-{number % CUSTOMERS}",
        "price": 100 + number * 37 % 900,
        "pieces": 1 + number % 4,
    }


def encode(sender: str, number: int) -> tuple[bytes, bytes]:
    """(key, value) of an order's record."""
    fields = order(sender, number)
    return fields["customer"].encode(), json.dumps(fields).encode()


def worth(sender: str, count: int) -> int:
    """Cents of the first ``count`` orders."""
    orders = (order(sender, number) for number in range(count))
    return sum(one["price"] * one["pieces"] for one in orders)
