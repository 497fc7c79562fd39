"""Azure Blob Storage, through adlfs.

1. Put-if-absent is one upload with ``If-None-Match: *``; ``BlobAlreadyExists`` is a conflict.
2. A read is one GET of up to 32 MiB; larger ones take one more for each further 32 MiB. Azure
   has no range that counts from the end: such a read asks for the size first.
3. adlfs holds the client and the credentials, the Azure client repeats what failed.
4. In a hierarchical namespace folders are listed among the files; they are told apart by
   their metadata.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from offsetlog.filesystems import AZURE
from offsetlog.storage import faults
from offsetlog.storage.faults import Fault, FaultKind, NoAnswer
from offsetlog.storage.fsspec import expect
from offsetlog.storage.object.base import ListingPage, ObjectStore
from offsetlog.storage.store import FileInfo

_DELETES_AT_ONCE = 16
_PARTS_AT_ONCE = 4


def judge(error: BaseException) -> Fault:
    """What an exception out of adlfs or the Azure client says."""
    status = getattr(error, "status_code", None) or 0
    code = str(getattr(error, "error_code", None) or "").rpartition(".")[2]
    text = faults.words(error).split("\n", 1)[0]
    if code in ("BlobAlreadyExists", "BLOB_ALREADY_EXISTS") or status == 412:
        return Fault(FaultKind.EXISTS, "a file is there")
    if code in ("ContainerNotFound", "CONTAINER_NOT_FOUND"):
        return Fault(FaultKind.REFUSED, "the container does not exist", "Create it.", False)
    if status == 404:
        return Fault(FaultKind.MISSING, "there is no such file")
    name = type(error).__name__
    if status in (401, 403) or name in ("ClientAuthenticationError", "CredentialUnavailableError"):
        return Fault(FaultKind.REFUSED, f"access denied ({text})", AZURE.credentials, False)
    if status in (400, 405, 411, 413):
        return Fault(FaultKind.REFUSED, text, "", False)
    if isinstance(error, (ValueError, TypeError)):
        return Fault(FaultKind.REFUSED, text, AZURE.credentials, False)
    return faults.of_exception(error)


class AzureStore(ObjectStore):
    judge = staticmethod(judge)
    delete_together = 256

    def _blob(self, key: str) -> Any:
        return self.fs.service_client.get_blob_client(container=self._bucket, blob=key)

    async def _ask_put(self, key: str, data: bytes, if_absent: bool) -> None:
        repeats: list[object] = []

        def count(**about: object) -> None:
            repeats.append(about.get("error"))

        try:
            await self._blob(key).upload_blob(
                data,
                overwrite=not if_absent,
                max_concurrency=_PARTS_AT_ONCE,
                retry_hook=count,
                **self.fs._timeout_kwargs,
            )
        except Exception as error:
            if (
                if_absent
                and repeats
                and judge(error).kind in (FaultKind.REFUSED, FaultKind.MISSING)
            ):
                # An earlier try of the same request may have landed.
                raise NoAnswer(faults.words(error)) from None
            raise

    async def _ask_get(self, key: str, start: int | None, end: int | None) -> bytes | None:
        blob = self._blob(key)
        if start is not None and start < 0:
            size = (await blob.get_blob_properties(**self.fs._timeout_kwargs)).size
            start = max(0, size + start)
        length = None if end is None else max(1, end - (start or 0))
        try:
            stream = await blob.download_blob(
                offset=(start or 0) if length is not None else start,
                length=length,
                max_concurrency=_PARTS_AT_ONCE,
                **self.fs._timeout_kwargs,
            )
            expect(stream.size or 0)
            data: bytes = await stream.readall()
        except Exception as error:
            if getattr(error, "status_code", None) == 416:
                return b""
            raise
        return data if end is None else data[: end - (start or 0)]

    async def _ask_info(self, key: str) -> FileInfo | None:
        found = await self._blob(key).get_blob_properties(**self.fs._timeout_kwargs)
        return None if _is_folder(found) else _file_info(found)

    async def _ask_page(self, prefix: str, flat: bool, token: Any) -> ListingPage:
        container = self.fs.service_client.get_container_client(self._bucket)
        ask = container.list_blobs if flat else container.walk_blobs
        pages = ask(
            name_starts_with=prefix,
            include=["metadata"],
            results_per_page=1000,
            **self.fs._timeout_kwargs,
        ).by_page(continuation_token=token)
        files, folders, markers = [], [], []
        async for page in pages:
            async for found in page:
                if not hasattr(found, "size"):
                    folders.append(found.name)
                elif _is_folder(found):
                    markers.append(found.name)
                else:
                    files.append(_file_info(found))
            break
        return ListingPage(files, folders, getattr(pages, "continuation_token", None), markers)

    async def _ask_delete(self, keys: Sequence[str]) -> None:
        limit = asyncio.Semaphore(_DELETES_AT_ONCE)

        async def one(key: str) -> None:
            async with limit:
                try:
                    await self._blob(key).delete_blob(**self.fs._timeout_kwargs)
                except Exception as error:
                    if judge(error).kind is not FaultKind.MISSING:
                        raise

        await asyncio.gather(*map(one, keys))


def _is_folder(found: Any) -> bool:
    metadata = found.metadata or {}
    return any(metadata.get(word) == "true" for word in ("hdi_isfolder", "is_directory"))


def _file_info(found: Any) -> FileInfo:
    return FileInfo(found.name, found.size, int(found.last_modified.timestamp() * 1000))
