"""The filesystems that are known, and what each can: the one list of them.

``open`` finds a store by it, ``doctor`` the packages, the offsets table its address for Delta, the
redactor what stands before an ``@``, the settings what is a credential, and errors what works. The
README's table and the extras of ``setup.cfg`` are compared with it by a test.

A filesystem may be written to if it decides a race of creators for one name: ``decides`` says how.
"""

from __future__ import annotations

from typing import NamedTuple


class Filesystem(NamedTuple):
    """One that is proven to decide the race, by its store."""

    name: str
    protocols: tuple[str, ...]
    decides: str
    store: str
    """Module and class."""
    package: str = ""
    """What must be installed for it, and the extra that brings it."""
    extra: str = ""
    delta: str = ""
    """The scheme by which readers of Delta reach it; empty where they can't."""
    hadoop: str = ""
    """The scheme by which Hadoop's clients reach it; empty where they can't."""
    credentials: str = ""
    """What to do when it refuses them."""
    credential_options: frozenset[str] = frozenset()
    """Options that are credentials: beside them none of the environment's are used."""
    names_container: bool = False
    """What stands before an ``@`` in its addresses is a container, and no user."""


LOCAL = Filesystem(
    "local", ("file", "local"), "an unnamed file, fsync, `link`",
    "offsetlog.storage.local.disk:LocalStore",
)  # fmt: skip
MEMORY = Filesystem(
    "memory", ("memory",), "a lock (one process)", "offsetlog.storage.memory:MemoryStore"
)
S3 = Filesystem(
    "S3 and compatible servers", ("s3", "s3a"), "`If-None-Match: *`",
    "offsetlog.storage.object.s3:S3Store", "s3fs", "s3", delta="s3", hadoop="s3a",
    credentials="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a profile, or give key= and "
    "secret=.",
    credential_options=frozenset(("key", "secret", "aws_access_key_id",
                                  "aws_secret_access_key")),
)  # fmt: skip
GCS = Filesystem(
    "Google Cloud Storage", ("gs", "gcs"), "`ifGenerationMatch=0`",
    "offsetlog.storage.object.gcs:GcsStore", "gcsfs", "gcs", delta="gs", hadoop="gs",
    credentials="Set GOOGLE_APPLICATION_CREDENTIALS or log in with gcloud, or give token=; the "
    "account needs the role Storage Object User.",
    credential_options=frozenset(("token",)),
)  # fmt: skip
AZURE = Filesystem(
    "Azure Blob", ("abfs", "abfss", "az", "adl"), "`If-None-Match: *`",
    "offsetlog.storage.object.azure:AzureStore", "adlfs", "azure", delta="az",
    hadoop="abfss",
    credentials="Give account_name= with account_key=, sas_token= or connection_string= (or set "
    "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY), or log in with az; the account "
    "needs the role Storage Blob Data Contributor.",
    credential_options=frozenset(("account_key", "sas_token", "connection_string",
                                  "client_secret")),
    names_container=True,
)  # fmt: skip
SFTP = Filesystem(
    "sftp", ("sftp", "ssh"), "rename without overwriting",
    "offsetlog.storage.shared.sftp:SftpStore", "paramiko", "sftp",
    credentials="Give username= with password= or key_filename=, or use an SSH agent.",
    credential_options=frozenset(("password",)),
)  # fmt: skip
SMB = Filesystem(
    "smb", ("smb",), "hard link", "offsetlog.storage.shared.smb:SmbStore", "smbprotocol", "smb",
    credentials="Give username= and password=, or smb://user:password@host/share/path.",
    credential_options=frozenset(("password",)),
)  # fmt: skip
FILESYSTEMS = (LOCAL, MEMORY, S3, GCS, AZURE, SFTP, SMB)
OF_PROTOCOL = {
    protocol: filesystem for filesystem in FILESYSTEMS for protocol in filesystem.protocols
}


class Unproven(NamedTuple):
    """One that is read only."""

    why: str
    is_remote: bool = True
    """Its address means the same place for as long as a process lives."""


_NOT_PROVEN = "its create was not proven to decide a race."
_CACHE = "a cache of files would answer for the files themselves."
UNPROVEN = {
    "http": Unproven("a web server is only read."),
    "https": Unproven("a web server is only read."),
    "ftp": Unproven(
        "FTP's rename replaces what is there, so of two writers one loses its records."
    ),
    "hdfs": Unproven("its create was not proven to decide a race through Arrow."),
    "arrow_hdfs": Unproven("its create was not proven to decide a race through Arrow."),
    "webhdfs": Unproven(_NOT_PROVEN),
    "dbfs": Unproven(_NOT_PROVEN),
    "reference": Unproven("a set of references is only read.", is_remote=False),
    "simplecache": Unproven(_CACHE, is_remote=False),
    "filecache": Unproven(_CACHE, is_remote=False),
    "blockcache": Unproven("a cache of blocks would answer for the files themselves.", False),
    "zip": Unproven("an archive is rewritten as a whole.", is_remote=False),
    "tar": Unproven("an archive is only read.", is_remote=False),
}
UNKNOWN = Unproven(
    "fsspec looks first and writes then, so of two writers one loses its records.", False
)


def of_unproven(protocol: str) -> Unproven:
    return UNPROVEN.get(protocol, UNKNOWN)


def what_works() -> str:
    """The addresses of filesystems that a log may be written to, as a list in words."""
    others = [f"{filesystem.protocols[0]}://" for filesystem in FILESYSTEMS[1:]]
    return f"a local path, {', '.join(others[:-1])} and {others[-1]}"


CONTAINER_PROTOCOLS = (
    *(protocol for fs in FILESYSTEMS if fs.names_container for protocol in fs.protocols),
    "wasb", "wasbs",
)  # fmt: skip


def hadoop_url(url: str) -> str | None:
    """The same place in the words of Hadoop's clients; None where they have none for it. Theirs for
    Azure need the account, which an address of fsspec may leave to its options."""
    protocol, separator, place = url.partition("://")
    filesystem = OF_PROTOCOL.get(protocol) if separator else None
    if filesystem is None or not filesystem.hadoop:
        return None
    if ("@" in place.partition("/")[0]) != filesystem.names_container:
        return None
    return f"{filesystem.hadoop}://{place}"
