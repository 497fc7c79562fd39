"""Google Cloud Storage, through gcsfs.

1. Put-if-absent is one upload with ``ifGenerationMatch=0``; 412 is a conflict.
2. A read is one GET, of whatever range, also of a file that is not there.
3. gcsfs holds the session and the credentials and repeats what failed; its class for zonal
   buckets is not used, since it asks about the bucket first.
4. Large files go up in parts. Only ``put`` does that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from offsetlog.errors import OffsetLogError
from offsetlog.filesystems import GCS
from offsetlog.storage import faults
from offsetlog.storage.faults import Fault, FaultKind, NoAnswer
from offsetlog.storage.fsspec import expect
from offsetlog.storage.object.base import ListingPage, ObjectStore, cut, range_header
from offsetlog.storage.store import FileInfo

_ONE_UPLOAD = 32 << 20
_MOSTLY_READ = 8 << 20
"""What is read at once is rarely larger."""
_DELETES_AT_ONCE = 16
_FIRST_PAUSE = 1.0
"""gcsfs waits at least so many seconds before it repeats a request."""


# Without a handler of its own gcsfs would print each refusal with its traceback.
logging.getLogger("gcsfs").addHandler(logging.NullHandler())


def judge(error: BaseException) -> Fault:
    """What an exception out of gcsfs, google-auth or aiohttp says."""
    status = _status(error)
    text = faults.words(error)
    if isinstance(error, FileExistsError) or status == 412:
        return Fault(FaultKind.EXISTS, "a file is there")
    if isinstance(error, FileNotFoundError) or status == 404:
        return Fault(
            FaultKind.MISSING, "there is no such file or bucket", "Check the bucket's name."
        )
    if status in (401, 403) or text.startswith("OSError: Forbidden"):
        return Fault(FaultKind.REFUSED, f"access denied ({text})", GCS.credentials, False)
    if type(error).__name__ in ("DefaultCredentialsError", "RefreshError", "GoogleAuthError"):
        return Fault(FaultKind.REFUSED, text, GCS.credentials, False)
    if status in (400, 405, 411, 413, 416) or isinstance(error, ValueError):
        return Fault(FaultKind.REFUSED, text, "", False)
    return faults.of_exception(error)


def _status(error: BaseException) -> int:
    code = getattr(error, "code", None)
    return int(code) if isinstance(code, (int, str)) and str(code).isdigit() else 0


class GcsStore(ObjectStore):
    judge = staticmethod(judge)

    def _make(self) -> Any:
        from gcsfs.core import GCSFileSystem

        try:
            return GCSFileSystem(**self._options)
        except OffsetLogError:
            raise
        except Exception as error:  # noqa: BLE001
            self._raise(error, "open", "")

    async def _ask_put(self, key: str, data: bytes, if_absent: bool) -> None:
        if not if_absent and len(data) > _ONE_UPLOAD:
            await self.fs._pipe_file(f"{self._bucket}/{key}", data, chunksize=_ONE_UPLOAD)
            return
        from gcsfs.core import simple_upload

        began = time.monotonic()
        try:
            mode = "create" if if_absent else "overwrite"
            await simple_upload(self.fs, self._bucket, key, data, mode=mode)
        except Exception as error:
            refused = judge(error).kind in (FaultKind.REFUSED, FaultKind.MISSING)
            if if_absent and refused and time.monotonic() - began >= _FIRST_PAUSE:
                # An earlier try of the same request may have landed.
                raise NoAnswer(faults.words(error)) from None
            raise

    async def _ask_get(self, key: str, start: int | None, end: int | None) -> bytes | None:
        wanted = range_header(start, end)
        # gcsfs gives head and body together, so the size is not known before.
        expect(_MOSTLY_READ if end is None else min(_MOSTLY_READ, end - (start or 0)))
        try:
            headers, data = await self.fs._call(
                "GET",
                self.fs.url(f"{self._bucket}/{key}"),
                headers={} if wanted is None else {"Range": wanted},
            )
        except Exception as error:
            if _status(error) == 416 or "range" in str(error).lower():
                return b""
            raise
        return cut(data, start, end, "Content-Range" in headers)

    async def _ask_info(self, key: str) -> FileInfo | None:
        found = await self.fs._call("GET", "b/{}/o/{}", self._bucket, key, json_out=True)
        return _file_info(found)

    async def _ask_page(self, prefix: str, flat: bool, token: Any) -> ListingPage:
        found = await self.fs._call(
            "GET",
            "b/{}/o",
            self._bucket,
            json_out=True,
            prefix=prefix,
            delimiter=None if flat else "/",
            pageToken=token,
            maxResults=1000,
        )
        return ListingPage(
            [_file_info(one) for one in found.get("items") or ()],
            list(found.get("prefixes") or ()),
            found.get("nextPageToken"),
        )

    async def _ask_delete(self, keys: Sequence[str]) -> None:
        limit = asyncio.Semaphore(_DELETES_AT_ONCE)

        async def one(key: str) -> None:
            async with limit:
                try:
                    await self.fs._call("DELETE", "b/{}/o/{}", self._bucket, key)
                except FileNotFoundError:
                    return

        await asyncio.gather(*map(one, keys))


def _file_info(found: dict[str, Any]) -> FileInfo:
    text = str(found.get("updated") or found.get("timeCreated") or "1970-01-01T00:00:00+00:00")
    modified = datetime.fromisoformat(text)
    size = int(found.get("size", 0))
    return FileInfo(str(found["name"]), size, int(modified.timestamp() * 1000))
