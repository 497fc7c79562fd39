"""A small S3 server with a latency of one's choice, for fairness and for counting.

1. One lock decides every put; nothing is ever half there.
2. Half of the latency passes before the decision and half after it, as on a network.
3. ``/_counts`` tells how many requests of which method came since ``/_reset``.
4. ``promise`` breaks the first rule on purpose: ``ignored`` heeds no ``If-None-Match``, ``raced``
   looks, and writes some milliseconds later.
5. It knows PUT (with ``If-None-Match: *``), GET with ranges, HEAD, DELETE, ListObjectsV2,
   deletion of many, and uploads in parts. Signatures are not looked at.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests.servers.process import Place, Server, answers, free_port

BUCKET = "offsetlog"
_PAGE = 1000
RACE_SECONDS = 0.004


class Item(NamedTuple):
    data: bytes
    time: float
    etag: str


class Files:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.items: dict[str, Item] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.counts: Counter[str] = Counter()
        self.ids = itertools.count(1)

    def put(self, path: str, data: bytes, if_absent: bool, promise: str = "kept") -> Item | None:
        item = Item(data, time.time(), f'"{hashlib.md5(data).hexdigest()}"')
        if if_absent and promise == "raced":
            if path in self.items:
                return None
            time.sleep(RACE_SECONDS)
        with self.lock:
            if_absent = if_absent and promise == "kept"
            if if_absent and path in self.items:
                return None
            self.items[path] = item
        return item


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files: Files
    put_seconds = 0.0
    get_seconds = 0.0
    promise = "kept"
    # One packet for head and body: else the kernel waits for the other side's word.
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        """Be silent."""

    def handle_one_request(self) -> None:
        super().handle_one_request()
        if not self.wfile.closed:
            self.wfile.flush()

    def handle_expect_100(self) -> bool:
        self._wait()
        self._wait()  # The client waits for this: a whole round trip.
        done = super().handle_expect_100()
        self.wfile.flush()
        return done

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self._wait()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _fail(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        self._answer(status, body, Content_Type="application/xml")

    def _wait(self) -> None:
        seconds = self.put_seconds if self.command in ("PUT", "POST") else self.get_seconds
        if seconds and not self.path.startswith("/_"):
            time.sleep(seconds / 2)

    def _begin(self) -> tuple[str, dict[str, str], bytes]:
        parts = urlsplit(self.path)
        query = {k: v[0] for k, v in parse_qs(parts.query, keep_blank_values=True).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "aws-chunked" in (self.headers.get("Content-Encoding") or ""):
            body = b"".join(_unchunk(body))
        if not parts.path.startswith("/_"):
            with self.files.lock:
                self.files.counts[self.command] += 1
        self._wait()
        return unquote(parts.path).strip("/"), query, body

    def do_PUT(self) -> None:
        path, query, body = self._begin()
        if "uploadId" in query:
            with self.files.lock:
                self.files.uploads[query["uploadId"]][int(query["partNumber"])] = body
            self._answer(200, ETag=f'"{hashlib.md5(body).hexdigest()}"')
            return
        if_absent = self.headers.get("If-None-Match") == "*"
        item = self.files.put(path, body, if_absent, self.promise)
        if item is None:
            self._fail(412, "PreconditionFailed")
        else:
            self._answer(200, ETag=item.etag)

    def do_GET(self) -> None:
        path, query, _ = self._begin()
        if path == "_counts":
            self._answer(200, json.dumps(self.files.counts).encode())
        elif path == "_reset":
            with self.files.lock:
                self.files.counts.clear()
            self._answer(200)
        elif "/" not in path:
            self._list(path, query)
        else:
            self._read(path)

    do_HEAD = do_GET

    def _read(self, path: str) -> None:
        item = self.files.items.get(path)
        if item is None:
            self._fail(404, "NoSuchKey")
            return
        headers = {
            "ETag": item.etag,
            "Last_Modified": formatdate(item.time, usegmt=True),
            "Accept_Ranges": "bytes",
        }
        size = len(item.data)
        wanted = self.headers.get("Range")
        if wanted is None:
            self._answer(200, item.data, Content_Length=str(size), **headers)
            return
        first, last = wanted.removeprefix("bytes=").split("-")
        start = int(first) if first else max(0, size - int(last))
        end = min(size, int(last) + 1) if first and last else size
        if start >= size:
            self._fail(416, "InvalidRange")
            return
        headers["Content_Range"] = f"bytes {start}-{end - 1}/{size}"
        self._answer(206, item.data[start:end], **headers)

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after") or ""
        start = f"{bucket}/{prefix}"
        with self.files.lock:
            found = sorted(p for p in self.files.items if p.startswith(start))
        files: list[str] = []
        folders: dict[str, None] = {}
        more = ""
        for path in found:
            key = path[len(bucket) + 1 :]
            below = key[len(prefix) :]
            folder = prefix + below.split(delimiter)[0] + delimiter if delimiter else ""
            mark = folder if delimiter and delimiter in below else key
            if mark <= after:
                continue
            if len(files) + len(folders) >= _PAGE and mark not in folders:
                more = max([*folders, *files[-1:]])
                break
            if mark == key:
                files.append(key)
            else:
                folders[mark] = None
        self._answer(200, self._page(bucket, prefix, files, list(folders), more))

    def _page(
        self, bucket: str, prefix: str, files: list[str], folders: list[str], more: str
    ) -> bytes:
        out = [f"<ListBucketResult><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix>"]
        for key in files:
            item = self.files.items.get(f"{bucket}/{key}")
            if item is not None:
                when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(item.time))
                about = f"<LastModified>{when}</LastModified><Size>{len(item.data)}</Size>"
                out.append(f"<Contents><Key>{escape(key)}</Key>{about}</Contents>")
        out += [f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in folders]
        token = f"<NextContinuationToken>{escape(more)}</NextContinuationToken>" if more else ""
        out.append(f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{token}")
        return ("".join(out) + "</ListBucketResult>").encode()

    def do_DELETE(self) -> None:
        path, query, _ = self._begin()
        with self.files.lock:
            if "uploadId" in query:
                self.files.uploads.pop(query["uploadId"], None)
            else:
                self.files.items.pop(path, None)
        self._answer(204)

    def do_POST(self) -> None:
        path, query, body = self._begin()
        if "delete" in query:
            with self.files.lock:
                for found in ElementTree.fromstring(body).iter():
                    if found.tag.endswith("Key"):
                        self.files.items.pop(f"{path}/{found.text}", None)
            self._answer(200, b"<DeleteResult></DeleteResult>")
        elif "uploads" in query:
            with self.files.lock:
                upload = str(next(self.files.ids))
                self.files.uploads[upload] = {}
            about = f"<UploadId>{upload}</UploadId>"
            self._answer(200, f"<Initiate>{about}</Initiate>".encode())
        else:
            with self.files.lock:
                parts = self.files.uploads.pop(query["uploadId"], None)
            if parts is None:
                self._fail(404, "NoSuchUpload")
                return
            data = b"".join(parts[number] for number in sorted(parts))
            item = self.files.put(path, data, self.headers.get("If-None-Match") == "*")
            if item is None:
                self._fail(412, "PreconditionFailed")
            else:
                self._answer(200, f"<Complete><ETag>{item.etag}</ETag></Complete>".encode())


def _unchunk(body: bytes) -> Iterator[bytes]:
    while body:
        head, _, rest = body.partition(b"\r\n")
        size = int(head.split(b";")[0], 16)
        if not size:
            return
        yield rest[:size]
        body = rest[size + 2 :]


def serve(port: int, put_seconds: float, get_seconds: float, promise: str) -> None:
    about = {
        "files": Files(), "put_seconds": put_seconds, "get_seconds": get_seconds,
        "promise": promise,
    }  # fmt: skip
    ThreadingHTTPServer.request_queue_size = 128
    ThreadingHTTPServer(("127.0.0.1", port), type("Bound", (Handler,), about)).serve_forever()


@contextmanager
def running(put_ms: float = 20, get_ms: float = 12, promise: str = "kept") -> Iterator[Place]:
    port = free_port()
    module = [sys.executable, "-m", "tests.servers.latency_s3", str(port)]
    module += ["--put-ms", str(put_ms), "--get-ms", str(get_ms), "--promise", promise]
    url = f"http://127.0.0.1:{port}"
    server = Server(lambda _: module, lambda: answers(f"{url}/_counts")).start()
    try:
        options = {"key": "latency", "secret": "latency-secret", "endpoint_url": url}
        yield Place(f"s3://{BUCKET}", options, port)
    finally:
        server.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--put-ms", type=float, default=20)
    parser.add_argument("--get-ms", type=float, default=12)
    parser.add_argument("--promise", choices=["kept", "raced", "ignored"], default="kept")
    given = parser.parse_args()
    serve(given.port, given.put_ms / 1000, given.get_ms / 1000, given.promise)
