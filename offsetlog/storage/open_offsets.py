"""From a log's store to the offsets table beside it.

1. Where ``deltalake`` reaches the filesystem the table is a Delta table; elsewhere a chain.
2. It lies in ``__consumer_offsets`` under the root, or where the setting says.
3. fsspec's options are told to ``deltalake`` in its own words; what has no word there is left
   to the environment. None of them is ever shown.
4. ``deltalake`` has threads of its own, which a fork does not take along: whose parent used it
   is refused by name, since it would panic.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidRequestError
from . import forks
from .chain_offsets import ChainOffsets
from .fsspec_store import FsspecStore
from .local import LocalStore
from .offsets_port import OffsetsPort
from .open import open_store
from .ports import Store

FOLDER = "__consumer_offsets"


def open_offsets(
    store: Store, place: str | None = None, storage_options: Mapping[str, Any] | None = None
) -> OffsetsPort:
    """The offsets table of the log on ``store``; ``place`` is a path or URL of its own."""
    folder = FOLDER
    if place is not None:
        if not isinstance(place, (str, os.PathLike)) or not str(place):
            raise InvalidRequestError(
                f"offsets.table is {place!r}.", "It is a path or a URL, or left out."
            )
        options = dict(storage_options or {})
        if isinstance(store, FsspecStore) and "://" in str(place) and not options:
            same = str(place).partition("://")[0] == store._protocol
            options = dict(store._options) if same else {}
        store, folder = open_store(str(place), **options), ""
    inner = _innermost(store)
    if isinstance(inner, LocalStore):
        from .delta_offsets import DeltaOffsets

        _one_process_only()
        path = os.path.join(inner._root, folder) if folder else inner._root
        return DeltaOffsets(store, folder, path, {}, inner._redact)
    if isinstance(inner, FsspecStore) and inner._protocol in _SCHEMES:
        from .delta_offsets import DeltaOffsets

        _one_process_only()
        scheme, words = _SCHEMES[inner._protocol]
        uri = f"{scheme}://{inner._path(folder)}".rstrip("/")
        options = words(inner._options)
        return DeltaOffsets(store, folder, uri, options, inner._redact)
    return ChainOffsets(store, folder)


_used_in: int | None = None
"""The process that used ``deltalake`` first, as ``forks`` marks it."""


def _one_process_only() -> None:
    global _used_in
    if _used_in is None:
        _used_in = forks.process()
    elif forks.is_foreign(_used_in):
        raise InvalidRequestError(
            "Groups can't be used in a process that was forked from one that used them: the "
            "Delta library does not survive a fork.",
            "Start it with multiprocessing's 'spawn' or 'forkserver', or fork before groups are "
            "used.",
        )


def _innermost(store: Any) -> Any:
    """The store under those that only count or watch."""
    while (inner := getattr(store, "inner", None)) is not None:
        store = inner
    return store


def _s3(options: Mapping[str, Any]) -> dict[str, str]:
    client = options.get("client_kwargs") or {}
    given = {**client, **{k: v for k, v in options.items() if v is not None}}
    out = _named(
        given,
        {
            "key": "AWS_ACCESS_KEY_ID",
            "username": "AWS_ACCESS_KEY_ID",
            "aws_access_key_id": "AWS_ACCESS_KEY_ID",
            "secret": "AWS_SECRET_ACCESS_KEY",
            "password": "AWS_SECRET_ACCESS_KEY",
            "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
            "token": "AWS_SESSION_TOKEN",
            "aws_session_token": "AWS_SESSION_TOKEN",
            "profile": "AWS_PROFILE",
            "region_name": "AWS_REGION",
            "endpoint_url": "AWS_ENDPOINT_URL",
        },
    )
    endpoint = out.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT_URL", "")
    if endpoint.startswith("http://"):
        out["AWS_ALLOW_HTTP"] = "true"
    if endpoint and not (out.get("AWS_REGION") or os.environ.get("AWS_REGION")):
        out["AWS_REGION"] = "us-east-1"
    if given.get("anon"):
        out["AWS_SKIP_SIGNATURE"] = "true"
    style = (given.get("config_kwargs") or {}).get("s3", {}).get("addressing_style")
    if style == "virtual":
        out["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = "true"
    out["aws_conditional_put"] = "etag"
    return out


def _gcs(options: Mapping[str, Any]) -> dict[str, str]:
    token = options.get("token")
    endpoint = options.get("endpoint_url")
    if endpoint or token == "anon":
        key: dict[str, Any] = {"disable_oauth": True, "client_email": "", "private_key": "",
                               "private_key_id": ""}  # fmt: skip
        if endpoint:
            key["gcs_base_url"] = str(endpoint)
        out = {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(key)}
        return {**out, "allow_http": "true"} if str(endpoint).startswith("http://") else out
    if isinstance(token, Mapping):
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(dict(token))}
    if isinstance(token, str) and os.path.exists(token):
        return {"GOOGLE_SERVICE_ACCOUNT": token}
    return {}


def _azure(options: Mapping[str, Any]) -> dict[str, str]:
    text = str(options.get("connection_string") or "")
    parts = dict(part.partition("=")[::2] for part in text.split(";") if "=" in part)
    given = {
        "account_name": parts.get("AccountName"),
        "account_key": parts.get("AccountKey"),
        "sas_token": parts.get("SharedAccessSignature"),
        "endpoint": parts.get("BlobEndpoint"),
        **{k: v for k, v in options.items() if v is not None},
    }
    out = _named(
        given,
        {
            "account_name": "AZURE_STORAGE_ACCOUNT_NAME",
            "account_key": "AZURE_STORAGE_ACCOUNT_KEY",
            "sas_token": "AZURE_STORAGE_SAS_TOKEN",
            "tenant_id": "AZURE_STORAGE_TENANT_ID",
            "client_id": "AZURE_STORAGE_CLIENT_ID",
            "client_secret": "AZURE_STORAGE_CLIENT_SECRET",
            "endpoint": "AZURE_STORAGE_ENDPOINT",
        },
    )
    if out.get("AZURE_STORAGE_ENDPOINT", "").startswith("http://"):
        out["allow_http"] = "true"
    if given.get("anon") is True:
        out["AZURE_SKIP_SIGNATURE"] = "true"
    return out


def _named(given: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, str]:
    return {word: str(given[name]) for name, word in words.items() if given.get(name)}


_SCHEMES = {
    "s3": ("s3", _s3),
    "s3a": ("s3", _s3),
    "gs": ("gs", _gcs),
    "gcs": ("gs", _gcs),
    "abfs": ("az", _azure),
    "abfss": ("az", _azure),
    "az": ("az", _azure),
    "adl": ("az", _azure),
}


def delta_address(port: OffsetsPort) -> str | None:
    """Where other readers of Delta find the table: a path or a URL; None where it is a chain."""
    uri = getattr(port, "_uri", None)
    return None if uri is None else str(uri)
