"""An sftp server with real files, on asyncssh.

It renames as OpenSSH's does: SFTP's own rename links and unlinks, so a name that is taken is
refused by the disk, atomically, and the answer is a bare "failure"; the POSIX rename replaces.
So it proves the client's part and the wire; that OpenSSH's server decides by link(2) is in its
own source (sftp-server.c, process_rename).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import asyncssh

from tests.servers.process import Place, Server, free_port, listens

USER, PASSWORD = "offsetlog", "offsetlog-tests-secret"


class Disk(asyncssh.SFTPServer):
    def rename(self, oldpath: bytes, newpath: bytes) -> None:
        old, new = self.map_path(oldpath), self.map_path(newpath)
        try:
            os.link(old, new, follow_symlinks=False)
        except FileExistsError:
            raise asyncssh.SFTPFailure("Failure") from None
        os.unlink(old)


class Login(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == (USER, PASSWORD)


async def serve(port: int) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    await asyncssh.create_server(
        Login, "127.0.0.1", port, server_host_keys=[key], sftp_factory=Disk, allow_scp=False
    )
    await asyncio.Event().wait()


@contextmanager
def running() -> Iterator[Place]:
    port = free_port()
    module = [sys.executable, "-m", "tests.servers.sftp_server", str(port)]
    server = Server(lambda _: module, lambda: listens(port)).start()
    try:
        disk = server.folder / "disk"
        disk.mkdir()
        options = {"username": USER, "password": PASSWORD, "port": port}
        options |= {"look_for_keys": False, "allow_agent": False}
        yield Place(f"sftp://127.0.0.1{disk}", options)
    finally:
        server.stop()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(int(sys.argv[1])))
