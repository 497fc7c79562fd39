"""S3 and what speaks like it, through s3fs.

1. Put-if-absent is one PUT with ``If-None-Match: *``. 412 is a conflict; 409 is no answer
   (S3 says it when a request for the same name is under way); a lost answer that the client
   repeats meets its own file and comes back as a conflict, which the port allows.
2. A read is one GET, of whatever range, also of a file that is not there.
3. s3fs holds the session and the credentials and repeats what failed; its higher calls are
   not used, since ``cat_file`` asks twice.
4. Large files go up in parts. Only ``put`` does that: an entry is never large.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from offsetlog.filesystems import S3
from offsetlog.storage import faults
from offsetlog.storage.faults import Fault, FaultKind, NoAnswer
from offsetlog.storage.fsspec import expect
from offsetlog.storage.object.base import ListingPage, ObjectStore, cut, range_header
from offsetlog.storage.store import Conflict, FileInfo, PutResult

_PART = 16 << 20
_PARTS_AT_ONCE = 4
_READ_TRIES = 3
_PART_TRIES = 3
_GONE_UPLOAD = "NoSuchUpload"

_RIGHTS = (
    "Allow s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket; without the last one, "
    "S3 answers so for any file that is not there."
)
_REFUSALS = {
    "NoSuchBucket": ("the bucket does not exist", "Create it, or correct the URL."),
    "InvalidBucketName": ("the bucket's name is not legal", "Correct the URL."),
    "AccessDenied": (
        "access denied",
        _RIGHTS,
    ),
    "InvalidAccessKeyId": ("the access key is not known", S3.credentials),
    "SignatureDoesNotMatch": ("the secret key is wrong", S3.credentials),
    "ExpiredToken": ("the session token has expired", "Get a new one."),
    "InvalidToken": ("the session token is not valid", "Get a new one."),
    "EntityTooLarge": ("the file is too large for one request", ""),
    "QuotaExceeded": ("the bucket's quota is used up", "Free some space, then try again."),
}


def judge(error: BaseException) -> Fault:
    """What an exception out of s3fs, botocore or aiohttp says."""
    response = _response(error)
    if response is not None:
        return _of_response(response)
    name = type(error).__name__
    if name in ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"):
        return Fault(FaultKind.REFUSED, "there are no complete credentials", S3.credentials, False)
    if name in ("ProfileNotFound", "NoRegionError", "ParamValidationError", "InvalidRegionError"):
        return Fault(FaultKind.REFUSED, faults.words(error), "", False)
    if isinstance(error, ValueError):
        return Fault(FaultKind.REFUSED, faults.words(error), "Check the storage options.", False)
    return faults.of_exception(error)


def _response(error: BaseException) -> dict[str, Any] | None:
    """The server's answer; s3fs keeps botocore's exception as the cause of its own."""
    for one in (error, error.__cause__):
        found = getattr(one, "response", None)
        if isinstance(found, dict) and "Error" in found:
            return found
    return None


def _of_response(response: dict[str, Any]) -> Fault:
    said = response["Error"]
    code = str(said.get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) or 0)
    text = f"{code or status}: {said.get('Message', '')}".strip(": ")
    if code in _REFUSALS:
        return Fault(FaultKind.REFUSED, *_REFUSALS[code], False)
    if status == 412 or code == "PreconditionFailed":
        return Fault(FaultKind.EXISTS, "a file is there")
    if status == 416 or code == "InvalidRange":
        return Fault(FaultKind.REFUSED, _PAST_THE_END, "", False)
    if code == _GONE_UPLOAD:
        return Fault(FaultKind.OPEN, "the answer to the end of an upload was lost")
    if status == 404 or code in ("NoSuchKey", "404"):
        return Fault(FaultKind.MISSING, "there is no such file")
    if status == 403:
        return Fault(FaultKind.REFUSED, *_REFUSALS["AccessDenied"], False)
    if status in (400, 401, 405, 411, 501):
        return Fault(FaultKind.REFUSED, text, "", False)
    return Fault(FaultKind.OPEN, text)


_PAST_THE_END = "the range starts behind the end"


def _do_not_ask_first(model: Any, params: dict[str, Any], **_: object) -> None:
    """botocore asks whether it may send the body, and waits a round trip for the answer."""
    if model.name == "PutObject":
        params["headers"].pop("Expect", None)


class S3Store(ObjectStore):
    judge = staticmethod(judge)
    _tuned: Any = None
    """The client whose puts were told not to wait."""

    def _put_if_absent(self, name: str, data: bytes) -> PutResult:
        try:
            return super()._put_if_absent(name, data)
        except Exception as error:
            response = _response(error)
            status = (response or {}).get("ResponseMetadata", {}).get("HTTPStatusCode")
            if status != 400 or self.info(name) is None:
                raise
            # Some servers say 400 where others say 412; the file that is there tells.
            return Conflict()

    async def _ask_put(self, key: str, data: bytes, if_absent: bool) -> None:
        if if_absent:
            await self._ask_create(key, data)
            return
        await self._client()
        if len(data) < 2 * _PART:
            await self.fs._call_s3("put_object", Bucket=self._bucket, Key=key, Body=data)
        else:
            await self._put_in_parts(key, data)

    async def _put_in_parts(self, key: str, data: bytes) -> None:
        """Where the answer to the last request was lost, the client asks again, and is told that
        there is no such upload: it may be complete. Then the same bytes are put again."""
        for tries_left in reversed(range(_PART_TRIES)):
            try:
                await self.fs._pipe_file(
                    f"{self._bucket}/{key}", data, chunksize=_PART, max_concurrency=_PARTS_AT_ONCE
                )
                return
            except Exception as error:
                said = (_response(error) or {}).get("Error", {})
                if said.get("Code") != _GONE_UPLOAD or not tries_left:
                    raise

    async def _client(self) -> Any:
        await self.fs.set_session()
        client = await self.fs.get_s3(self._bucket)
        if client is not self._tuned:
            # Where botocore's own handler is, and after it.
            client.meta.events.register_last(
                "before-call.s3", _do_not_ask_first, unique_id="offsetlog-put"
            )
            self._tuned = client
        return client

    async def _ask_create(self, key: str, data: bytes) -> None:
        # s3fs would repeat it without a word; botocore, which does so too, says how often.
        create = (await self._client()).put_object
        kwargs = self.fs._get_s3_method_kwargs(
            create, Bucket=self._bucket, Key=key, Body=data, IfNoneMatch="*"
        )
        try:
            await create(**kwargs)
        except Exception as error:
            response = _response(error)
            repeated = response and response.get("ResponseMetadata", {}).get("RetryAttempts")
            if repeated and judge(error).kind is FaultKind.REFUSED:
                raise NoAnswer(faults.words(error)) from None
            raise

    async def _ask_get(self, key: str, start: int | None, end: int | None) -> bytes | None:
        wanted = range_header(start, end)
        range_kw = {} if wanted is None else {"Range": wanted}
        for tries_left in reversed(range(_READ_TRIES)):
            try:
                answer = await self.fs._call_s3(
                    "get_object", Bucket=self._bucket, Key=key, **range_kw
                )
                expect(answer.get("ContentLength") or 0)
                async with answer["Body"] as body:
                    data: bytes = await body.read()
                break
            except Exception as error:
                fault = judge(error)
                if fault.text == _PAST_THE_END:
                    return b""
                # A body that breaks off is asked for again; s3fs repeats only the heads.
                broke = isinstance(error, (OSError, asyncio.TimeoutError)) or _is_payload(error)
                if fault.kind is not FaultKind.OPEN or not broke or not tries_left:
                    raise
        return cut(data, start, end, "ContentRange" in answer)

    async def _ask_info(self, key: str) -> FileInfo | None:
        found = await self.fs._call_s3("head_object", Bucket=self._bucket, Key=key)
        return FileInfo(key, found["ContentLength"], _milliseconds(found["LastModified"]))

    async def _ask_page(self, prefix: str, flat: bool, token: Any) -> ListingPage:
        more = {} if flat else {"Delimiter": "/"}
        if token:
            more["ContinuationToken"] = token
        found = await self.fs._call_s3(
            "list_objects_v2", Bucket=self._bucket, Prefix=prefix, **more
        )
        return ListingPage(
            [
                FileInfo(one["Key"], one["Size"], _milliseconds(one["LastModified"]))
                for one in found.get("Contents", ())
            ],
            [one["Prefix"] for one in found.get("CommonPrefixes", ())],
            found.get("NextContinuationToken") if found.get("IsTruncated") else None,
        )

    async def _ask_delete(self, keys: Sequence[str]) -> None:
        if len(keys) == 1:
            await self.fs._call_s3("delete_object", Bucket=self._bucket, Key=keys[0])
            return
        answer = await self.fs._call_s3(
            "delete_objects",
            Bucket=self._bucket,
            Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True},
        )
        for failed in answer.get("Errors", ()):
            if failed.get("Code") != "NoSuchKey":
                raise OSError(f"{failed.get('Key')}: {failed.get('Code')} {failed.get('Message')}")


def _milliseconds(time: Any) -> int:
    return int(time.timestamp() * 1000)


def _is_payload(error: BaseException) -> bool:
    return type(error).__module__.startswith(("aiohttp", "botocore", "aiobotocore"))
