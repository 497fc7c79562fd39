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
7. Every call has an end, also where a server takes requests and answers nothing: then it is
   ``Unknown``, or ``SilenceError`` of ``storage.faults``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple


class Committed(NamedTuple):
    """The file is there, and this call put it there."""


class Conflict(NamedTuple):
    """A complete file is there; whose it is, only its content tells."""


class Unknown(NamedTuple):
    """No answer came. ``error`` says why, in words fit for a user."""

    error: str
    waited: bool = False
    """Whether the server was silent for all the time that a call has: who tries again at once waits
    as long again."""


PutResult = Committed | Conflict | Unknown


class FileInfo(NamedTuple):
    """One file of a listing; ``modified_ms`` is the storage's own clock."""

    name: str
    size: int
    modified_ms: int


class Offer(ABC):
    """Bytes on offer: the same ones may be put at one name after another."""

    calls_check: bool = False
    """Whether each put calls ``check`` once it has opened the folder: what that does not refuse
    is put into that very folder."""

    check: Callable[[], None] | None = None
    """Set by the caller; raises if the folder is not the caller's any more."""

    @abstractmethod
    def put(self, name: str) -> PutResult:
        """Create ``name`` with these bytes if nothing is there."""

    @abstractmethod
    def close(self) -> None:
        """Forget the bytes (on a local disk: the temporary file)."""


class Store(ABC):
    """A root directory on some filesystem. What is abstract every store must do; what has a
    default here it may do better."""

    url: str
    """Where the root is, fit to be shown: without secrets."""

    is_local: bool
    """Whether a call costs microseconds: no fairness waits, no poll interval."""

    stays: bool = False
    """Whether the address means the same place for as long as the process lives, as one on the
    network does and a mount point does not: then the root need not be looked for again."""

    may_stall: bool = False
    """Whether a call may take minutes, as a server's may that answers nothing."""

    has_stamps: bool = False
    """Whether ``stamp`` tells one file at a name from another without a read."""

    takes_buffers: bool = False
    """Whether ``put`` takes a ``memoryview``, which saves a copy of a large file."""

    leaves_temporaries: bool = False
    """Whether a writer that is killed may leave files that only ``sweep`` finds."""

    @property
    def replaces_at_once(self) -> bool:
        """Whether readers of a file that is overwritten see the old bytes or the new ones, also
        when the writer is killed. Entries are never overwritten where it is false."""
        return True

    @property
    def needs_probe(self) -> bool:
        """Whether a new root is only made after ``probe_store``: where no kernel of this machine
        decides who makes a file."""
        return not self.is_local

    # --- creating and replacing --------------------------------------------------------------

    def before_creating(self, see: Callable[[], bool]) -> None:  # noqa: B027
        """Call ``see`` before the first file is created from now on, and again before the next
        one until it has returned True. What it raises is that create's error, and what it creates
        itself goes through. Once True, it is not asked again in this process about this storage.
        Nothing is to be done where the kernel of this machine decides who makes a file."""

    @abstractmethod
    def offer(self, data: bytes, beside: str) -> Offer:
        """Prepare ``data`` for put-if-absent at names in the folder of the name ``beside``."""

    @abstractmethod
    def put(self, name: str, data: bytes, durable: bool = True) -> None:
        """Create or atomically replace a file: readers see the old bytes or the new ones.
        ``durable=False`` saves the fsync on a local disk; it is for caches, and for files that
        ``sync`` makes durable later."""

    def sync(self, name: str) -> None:  # noqa: B027
        """Make the bytes of a file durable, whoever wrote them. A server that has answered has."""

    @abstractmethod
    def settle(self, folder: str) -> None:
        """Make what was created in a folder durable (local: fsync of the folder)."""

    # --- reading -----------------------------------------------------------------------------

    @abstractmethod
    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes | None:
        """The bytes of a file, or of ``[start, end)`` of it (a negative ``start`` counts from its
        end); None when there is no such file. One request."""

    def view(
        self, name: str, start: int | None = None, end: int | None = None
    ) -> bytes | memoryview | None:
        """``get`` without a copy of the bytes, where there is a way to do without."""
        return self.get(name, start, end)

    @abstractmethod
    def info(self, name: str) -> FileInfo | None:
        """Size and time of a file; None when there is no such file."""

    def stamp(self, name: str) -> object:
        """What changes when a file is replaced; None when there is no such file."""
        raise NotImplementedError

    @abstractmethod
    def list(self, folder: str) -> Iterator[FileInfo]:
        """The files directly in a folder, in any order; nothing when there is no such folder."""

    @abstractmethod
    def folders(self, folder: str) -> Iterator[str]:
        """The names (not paths) of the folders directly in a folder."""

    # --- deleting ----------------------------------------------------------------------------

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those that are not there are passed over."""

    @abstractmethod
    def delete_tree(self, folder: str) -> None:
        """Delete a folder with all that is in it."""

    def remove_folder(self, folder: str) -> bool:
        """Remove a folder if it is empty; whether it is gone. Where folders are only parts of the
        names of files it is."""
        return True

    def sweep(self, folder: str, before_ms: int) -> int:
        """Remove temporaries that killed writers left in a folder; how many there were."""
        return 0

    # --- where it is -------------------------------------------------------------------------

    def keep_to(  # noqa: B027
        self, name: str, check: Callable[[bytes | None], None]
    ) -> None:
        """From now on read, create and delete nothing but in the root whose file ``name`` passes
        ``check``, which raises an error for any other. Nothing is to be done where the address
        means the same place for as long as the process lives."""

    def above(self) -> Iterator[tuple[Store, str]]:
        """The folders above the root, the nearest first, each with the part that leads here. They
        use this store's connection, and need not be closed."""
        return iter(())

    def delta_address(self, folder: str) -> str | None:
        """The path or URL by which readers of Delta find a folder; None where they can't."""
        return None

    def options_for(self, url: str) -> Mapping[str, Any]:
        """This store's options, where they are good for another address too."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Free what the store holds."""
