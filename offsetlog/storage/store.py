"""What the log asks of a filesystem, and the answers it can get.

Rules of this port:

1. Names are relative to the root, with ``/`` between their parts; a store never leaves its root.
2. ``Offer.put`` creates a file that was not there, complete, or does not create it. Of any
   number of racing creators of one name exactly one gets ``Committed``.
3. Losing a race is a value (``Conflict``), and so is not knowing (``Unknown``): after an
   ``Unknown`` the file may be there, may appear later, or may never appear.
4. A ``Conflict`` says that a complete file is there. It may be the caller's own, put by an
   attempt whose answer was lost inside the client library.
5. Reads and listings are never answered from a cache.
6. Foreign exceptions do not pass: they become an error of ``offsetlog.errors`` with
   no secret in its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol


class Committed(NamedTuple):
    """The file is there, and this call put it there."""


class Conflict(NamedTuple):
    """A complete file is there; whose it is, only its content tells."""


class Unknown(NamedTuple):
    """No answer came. ``error`` says why, in words fit for a user."""

    error: str


PutResult = Committed | Conflict | Unknown


class FileInfo(NamedTuple):
    """One file of a listing; ``modified_ms`` is the storage's own clock."""

    name: str
    size: int
    modified_ms: int


class Offer(Protocol):
    """Bytes on offer: the same ones may be put at one name after another."""

    def put(self, name: str) -> PutResult:
        """Create ``name`` with these bytes if nothing is there."""

    def close(self) -> None:
        """Forget the bytes (on a local disk: the temporary file)."""


class Store(Protocol):
    """A root directory on some filesystem.

    Two more things a store may have. With a true ``stays`` its address means the same place for
    as long as the process lives, as one on the network does and a mount point does not; so the
    root need not be looked for again. ``keep_to(name, check)`` lets it create nothing but in the
    root whose file ``name`` passes ``check``.

    And, where folders are more than parts of names or looks are cheap: ``stamp(name)`` gives what
    changes when a file is replaced, without a read of it; an offer with an attribute ``check``
    calls it once the folder for a put is open, and puts into that very folder;
    ``remove_folder(folder)`` removes an empty folder and says whether it is gone; ``above()``
    gives stores of the folders above the root, each with the part that leads here. With a false
    ``replaces_at_once`` a file that is overwritten may be left in half, so entries are not."""

    url: str
    """Where the root is, fit to be shown: without secrets."""

    is_local: bool
    """Whether a call costs microseconds: no fairness waits, no poll interval."""

    def offer(self, data: bytes, beside: str) -> Offer:
        """Prepare ``data`` for put-if-absent at names in the folder of the name ``beside``."""

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes | None:
        """The bytes of a file, or of ``[start, end)`` of it (a negative ``start`` counts from its
        end); None when there is no such file. One request."""

    def put(self, name: str, data: bytes, durable: bool = True) -> None:
        """Create or atomically replace a file: readers see the old bytes or the new ones.

        ``durable=False`` is for caches: on a local disk it saves the fsync. A store with a true
        ``takes_buffers`` takes a ``memoryview`` as well, which saves a copy of a large file. It
        may also have ``view``, which is ``get`` as a ``memoryview``."""

    def list(self, folder: str) -> Iterator[FileInfo]:
        """The files directly in a folder, in any order; nothing when there is no such folder."""

    def folders(self, folder: str) -> Iterator[str]:
        """The names (not paths) of the folders directly in a folder."""

    def info(self, name: str) -> FileInfo | None:
        """Size and time of a file; None when there is no such file."""

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those that are not there are passed over."""

    def delete_tree(self, folder: str) -> None:
        """Delete a folder with all that is in it."""

    def settle(self, folder: str) -> None:
        """Make what was created in a folder durable (local: fsync of the folder)."""

    def close(self) -> None:
        """Free what the store holds."""
