"""From a URL to the store that is safe for it.

1. A protocol with a proven way to decide a race gets that way; any other is opened for
   reading, and says why when it is asked to write.
2. ``single_writer=True`` turns such a filesystem into one that looks and then writes. It
   changes nothing where there is a proven way.
3. Another package may bring a way for its own protocol: an entry point in the group
   ``offsetlog.stores``, named like the protocol, that gives a ``Store`` for a URL and options.
   ``offsetlog.testing.check_store`` says whether it is fit; ours can't be replaced.
4. A package that is not installed is named with the extra that brings it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import re
from collections.abc import Callable
from typing import Any

from offsetlog.errors import InvalidRequestError
from offsetlog.filesystems import OF_PROTOCOL, Filesystem, of_unproven, what_works
from offsetlog.redact import Redactor, know_environment, safe_url
from offsetlog.storage.store import Store

STORES = "offsetlog.stores"


def open_store(url: str, *, single_writer: bool = False, **storage_options: Any) -> Store:
    """The store for a root, given by a local path or any URL that fsspec knows."""
    if not isinstance(url, (str, os.PathLike)) or not str(url):
        raise InvalidRequestError(
            "The root must be a path or a URL.", "For example /data/log or s3://bucket/log."
        )
    url = os.fspath(url)
    know_environment(os.environ)
    refuse_one_slash(url)
    protocol, chained = _protocol(url)
    if protocol in ("file", "local") and not chained:
        return _local(url, storage_options)
    if protocol == "memory" and not chained:
        from offsetlog.storage.memory import MemoryStore

        _no_options(url, storage_options)
        return MemoryStore(url.partition("://")[2])
    known = None if chained else OF_PROTOCOL.get(protocol)
    if known is not None:
        return _proven(known, protocol, url, storage_options)
    return _unproven(protocol, chained, url, storage_options, single_writer)


def parse_option(text: str) -> Any:
    """A storage option as text: true and false, and JSON objects and lists; else text."""
    if text in ("true", "false"):
        return text == "true"
    if text[:1] in ("{", "["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def refuse_one_slash(url: str) -> None:
    """``s3:/bucket/log`` would be a folder ``s3:`` on this disk, which nobody means."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)", url)
    if found is not None and found[1] not in ("file", "local"):
        raise InvalidRequestError(
            f"{safe_url(url)} has one slash after {found[1]}:, which makes it a local folder.",
            f"Write {found[1]}://..., or begin with ./ if you mean that folder.",
        )
    if re.match(r"[^/.~:][^/:]*:[^/]+@", url) and "://" not in url:
        raise InvalidRequestError(
            f"{safe_url(url)} has a user and a password, but no protocol: it is a local folder.",
            "Write the protocol in front, such as s3://, or begin with ./ if you mean that folder.",
        )


def _protocol(url: str) -> tuple[str, bool]:
    """(protocol, whether several filesystems are chained)."""
    first = url.split("::", 1)[0]
    protocol, separator, _ = first.partition("://")
    if "::" in url and (separator or first.isalnum()):
        return protocol, True
    if separator:
        return protocol.lower(), False
    if url.startswith(("file:", "local:")):
        return "file", False
    return "file", False


def _local(url: str, options: dict[str, Any]) -> Store:
    from offsetlog.storage.local.disk import LocalStore

    _no_options(url, options)
    path = url
    for prefix in ("file:", "local:"):
        if url.startswith(prefix):
            path = url.removeprefix(prefix).removeprefix("//")
    if not path:
        raise InvalidRequestError(f"{url!r} names no folder.", "For example file:///data/log.")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidRequestError(
            f"{ascii(url)} is no text, so it names no folder.", "For example file:///data/log."
        ) from None
    return LocalStore(os.path.expanduser(path))


def _no_options(url: str, options: dict[str, Any]) -> None:
    if options:
        raise InvalidRequestError(
            f"{safe_url(url)} takes no storage options, but was given {sorted(options)}."
        )


def _proven(known: Filesystem, protocol: str, url: str, options: dict[str, Any]) -> Store:
    _installed(known.package, url)
    path, options = _resolve(protocol, url, options)
    if not path.strip("/"):
        raise InvalidRequestError(
            f"{safe_url(url)} names no place.", f"For example {protocol}://name/log."
        )
    module, _, kind = known.store.partition(":")
    store: Store = getattr(importlib.import_module(module), kind)(protocol, path, url, options)
    return store


def _unproven(
    protocol: str, chained: bool, url: str, options: dict[str, Any], single_writer: bool
) -> Store:
    from offsetlog.storage.fsspec import LookThenWriteStore, ReadOnlyStore

    if chained:
        import fsspec

        redact = Redactor(url, options)
        try:
            fs, path = fsspec.core.url_to_fs(url, **options)
        except Exception as error:  # noqa: BLE001
            raise _cannot_open(url, error, redact) from None
        reason = "one filesystem on top of another was not proven to decide a race."
        chain = LookThenWriteStore if single_writer else ReadOnlyStore
        store = chain(protocol, path, url, options, reason)
        store._make = lambda: fs  # type: ignore[method-assign]
        return store
    own = _of_another_package(protocol)
    if own is not None:
        foreign = own(url, **options)
        if not isinstance(foreign, Store):
            raise InvalidRequestError(
                f"The store for {protocol}:// is a {type(foreign).__name__}, which is not derived "
                "from offsetlog.storage.Store.",
                "Ask the author of the package that brings it for a newer version.",
            )
        return foreign
    path, options = _resolve(protocol, url, options)
    reason = of_unproven(protocol).why
    kind = LookThenWriteStore if single_writer else ReadOnlyStore
    return kind(protocol, path, url, options, reason)


def _of_another_package(protocol: str) -> Callable[..., object] | None:
    """A way that another package vouches for, by an entry point named like the protocol."""
    for found in importlib.metadata.entry_points(group=STORES, name=protocol):
        try:
            own: Callable[..., object] = found.load()
        except Exception as error:  # noqa: BLE001
            raise InvalidRequestError(
                f"The store for {protocol}:// of {found.value} can't be loaded: "
                f"{type(error).__name__}.",
                "Mend or remove the package that brings it.",
            ) from None
        return own
    return None


def _resolve(protocol: str, url: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(path, options) as fsspec's class for the protocol understands the URL."""
    import fsspec

    redact = Redactor(url, options)
    try:
        kind: Any
        if protocol in ("sftp", "ssh"):
            # sshfs, where it is installed, takes these names for itself.
            kind = importlib.import_module("fsspec.implementations.sftp").SFTPFileSystem
        else:
            kind = fsspec.get_filesystem_class(protocol)
        in_url = kind._get_kwargs_from_urls(url)
        return str(kind._strip_protocol(url)), {**in_url, **options}
    except Exception as error:  # noqa: BLE001
        raise _cannot_open(url, error, redact) from None


def _installed(package: str, url: str) -> None:
    try:
        importlib.import_module(package)
    except ImportError:
        raise InvalidRequestError(
            f"{safe_url(url)} needs the package {package}, which is not installed.",
            f"Install it with: pip install {package}",
        ) from None


def _cannot_open(url: str, error: Exception, redact: Redactor) -> InvalidRequestError:
    return InvalidRequestError(
        f"{redact(safe_url(url))} can't be opened: {redact(error)}.",
        f"Known to work: {what_works()}; others need their fsspec package.",
    )
