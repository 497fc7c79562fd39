"""An SMB server with real files, on impacket's.

impacket knows no hard links and looks before it renames. Both are put right here with link(2),
as Samba does it (smb2_setinfo, hardlink_internals: a name that is there is a collision, then
linkat). So it proves the client's part and the wire, not Windows or Samba themselves.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import Place, Server, free_port, listens

USER, PASSWORD, SHARE = "offsetlog", "offsetlog-tests-secret", "LOG"
_LINK, _RENAME = 11, 10


def serve(port: int, folder: str) -> None:
    from impacket import smb3structs, smbserver
    from impacket.nt_errors import (
        STATUS_ACCESS_DENIED,
        STATUS_NO_SUCH_FILE,
        STATUS_OBJECT_NAME_COLLISION,
        STATUS_OBJECT_NAME_NOT_FOUND,
        STATUS_OBJECT_PATH_NOT_FOUND,
        STATUS_SUCCESS,
    )
    from impacket.ntlm import compute_lmhash, compute_nthash

    plain = smbserver.SMB2Commands.smb2SetInfo

    def set_info(connection, server, packet):  # type: ignore[no-untyped-def]
        asked = smb3structs.SMB2SetInfo(packet["Data"])
        if asked["FileInfoClass"] not in (_LINK, _RENAME):
            return plain(connection, server, packet)
        known = server.getConnectionData(connection)
        file_id = asked["FileID"].getData()
        if file_id == b"\xff" * 16:  # The file that the same message has just opened.
            file_id = known["LastRequest"]["SMB2_CREATE"]["FileID"]
        opened = known["OpenedFiles"][file_id]
        share = known["ConnectedShares"][packet["TreeID"]]["path"]
        about = smb3structs.FILE_RENAME_INFORMATION_TYPE_2(asked["Buffer"])
        last = about["FileName"].decode("utf-16le").replace("\\", "/").lstrip("/")
        target = os.path.join(share, last)
        status = STATUS_SUCCESS
        try:
            if about["ReplaceIfExists"]:
                os.rename(opened["FileName"], target)
            else:
                os.link(opened["FileName"], target)
                if asked["FileInfoClass"] == _RENAME:
                    os.unlink(opened["FileName"])
            if asked["FileInfoClass"] == _RENAME:
                opened["FileName"] = target
        except FileExistsError:
            status = STATUS_OBJECT_NAME_COLLISION
        except OSError:
            status = STATUS_ACCESS_DENIED
        if status != STATUS_SUCCESS:
            return [smb3structs.SMB2Error()], None, status
        return [smb3structs.SMB2SetInfo_Response()], None, status

    def _has_parent(server, connection, packet):  # type: ignore[no-untyped-def]
        asked = smb3structs.SMB2Create(packet["Data"])
        share = server.getConnectionData(connection)["ConnectedShares"][packet["TreeID"]]["path"]
        name = asked["Buffer"][: asked["NameLength"]].decode("utf-16le").replace("\\", "/")
        return os.path.isdir(os.path.dirname(os.path.join(share, name)))

    plain_create = smbserver.SMB2Commands.smb2Create

    def create(connection, server, packet):  # type: ignore[no-untyped-def]
        """With the words of real servers: what was done, and that a name is not there."""
        answers, rest, status = plain_create(connection, server, packet)
        if status == STATUS_SUCCESS:
            asked = smb3structs.SMB2Create(packet["Data"])["CreateDisposition"]
            answers[0]["CreateAction"] = {1: 1, 2: 2, 4: 3}.get(asked, 2)
            opened = server.getConnectionData(connection)["OpenedFiles"]
            handle = opened[answers[0]["FileID"]]["FileHandle"]
            if handle > 2:  # Of the open file, not of what its name means a moment later.
                answers[0]["EndOfFile"] = os.fstat(handle).st_size
        elif status == STATUS_ACCESS_DENIED and not _has_parent(server, connection, packet):
            status = STATUS_OBJECT_PATH_NOT_FOUND
        elif status == STATUS_NO_SUCH_FILE:
            status = STATUS_OBJECT_NAME_NOT_FOUND
        return answers, rest, status

    smbserver.SMB2Commands.smb2Create = staticmethod(create)
    smbserver.SMB2Commands.smb2SetInfo = staticmethod(set_info)
    server = smbserver.SimpleSMBServer(listenAddress="127.0.0.1", listenPort=port)
    server.setSMB2Support(True)
    server.addShare(SHARE, folder, "", readOnly="no")
    server.addCredential(USER, 1000, compute_lmhash(PASSWORD), compute_nthash(PASSWORD))
    server.start()


@contextmanager
def running() -> Iterator[Place]:
    port = free_port()

    def command(folder: Path) -> list[str]:
        share = folder / "share"
        share.mkdir()
        return [sys.executable, "-m", "tests.servers.smb_server", str(port), str(share)]

    server = Server(command, lambda: listens(port)).start()
    try:
        options = {"username": USER, "password": PASSWORD, "port": port}
        yield Place(f"smb://127.0.0.1/{SHARE}", options)
    finally:
        server.stop()


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2])
