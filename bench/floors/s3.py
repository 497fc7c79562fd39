"""Bare PUT and GET against an S3 server, two ways.

1. ``BareHttp`` is one kept connection and no signature, for servers that do not check one: the
   least that HTTP can cost.
2. ``BareS3fs`` is s3fs's own client, signature and all: the least that a program which goes
   through fsspec can cost. The figures name which one they are held against.
"""

from __future__ import annotations

import http.client
from typing import Any
from urllib.parse import urlsplit


class BareHttp:
    """One connection, one bucket."""

    name = "bare HTTP"

    def __init__(self, endpoint: str, bucket: str) -> None:
        self._bucket = bucket
        self._connection = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=30)

    def _ask(self, method: str, key: str, body: bytes | None, headers: dict[str, str]) -> Any:
        self._connection.request(method, f"/{self._bucket}/{key}", body, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def make_bucket(self) -> None:
        """Create the bucket; no matter if it is there."""
        self._connection.request("PUT", f"/{self._bucket}")
        answer = self._connection.getresponse()
        answer.read()
        if answer.status not in (200, 409):
            raise RuntimeError(f"PUT bucket {self._bucket}: {answer.status}")

    def put(self, key: str, data: bytes) -> None:
        """Create or overwrite."""
        status, text = self._ask("PUT", key, data, {})
        if status != 200:
            raise RuntimeError(f"PUT {key}: {status} {text[:200]!r}")

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Create; False when something is there. 409 asks to try again, and that is done."""
        while True:
            status, text = self._ask("PUT", key, data, {"If-None-Match": "*"})
            if status in (200, 412):
                return bool(status == 200)
            if status != 409:
                raise RuntimeError(f"PUT {key}: {status} {text[:200]!r}")

    def get(self, key: str) -> bytes | None:
        """The bytes; None when nothing is there."""
        status, data = self._ask("GET", key, None, {})
        if status not in (200, 404):
            raise RuntimeError(f"GET {key}: {status} {data[:200]!r}")
        return bytes(data) if status == 200 else None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class BareS3fs:
    """The same through s3fs."""

    name = "bare s3fs"

    def __init__(self, bucket: str, options: dict[str, Any]) -> None:
        import s3fs

        self._bucket = bucket
        self._fs = s3fs.S3FileSystem(**options, use_listings_cache=False)

    def put(self, key: str, data: bytes) -> None:
        """One PUT."""
        self._fs.pipe_file(f"{self._bucket}/{key}", data)

    def get(self, key: str) -> bytes | None:
        """One GET: with one part s3fs does not ask for the size first."""
        try:
            return bytes(self._fs.cat_file(f"{self._bucket}/{key}", max_concurrency=1))
        except FileNotFoundError:
            return None

    def close(self) -> None:
        """s3fs closes its own connections."""
