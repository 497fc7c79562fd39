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
from typing import Any

from tests.servers.process import Place, Server, free_port, listens

USER, PASSWORD, SHARE = "offsetlog", "offsetlog-tests-secret", "LOG"
_LINK, _RENAME = 11, 10


def serve(port: int, folder: str) -> None:
    from impacket import smbserver
    from impacket.ntlm import compute_lmhash, compute_nthash

    commands = smbserver.SMB2Commands
    commands.smb2SetInfo = staticmethod(_with_links(commands.smb2SetInfo))
    commands.smb2Create = staticmethod(_with_real_words(commands.smb2Create))
    server = smbserver.SimpleSMBServer(listenAddress="127.0.0.1", listenPort=port)
    server.setSMB2Support(True)
    server.addShare(SHARE, folder, "", readOnly="no")
    server.addCredential(USER, 1000, compute_lmhash(PASSWORD), compute_nthash(PASSWORD))
    server.start()


def _with_links(plain: Any) -> Any:
    """Links and renames that the disk decides."""
    from impacket import nt_errors, smb3structs

    def set_info(connection: Any, server: Any, packet: Any) -> Any:
        asked = smb3structs.SMB2SetInfo(packet["Data"])
        if asked["FileInfoClass"] not in (_LINK, _RENAME):
            return plain(connection, server, packet)
        known = server.getConnectionData(connection)
        file_id = asked["FileID"].getData()
        if file_id == b"\xff" * 16:  # The file that the same message has just opened.
            file_id = known["LastRequest"]["SMB2_CREATE"]["FileID"]
        opened = known["OpenedFiles"][file_id]
        about = smb3structs.FILE_RENAME_INFORMATION_TYPE_2(asked["Buffer"])
        last = about["FileName"].decode("utf-16le").replace("\\", "/").lstrip("/")
        target = os.path.join(known["ConnectedShares"][packet["TreeID"]]["path"], last)
        try:
            if about["ReplaceIfExists"]:
                os.rename(opened["FileName"], target)
            else:
                os.link(opened["FileName"], target)
                if asked["FileInfoClass"] == _RENAME:
                    os.unlink(opened["FileName"])
        except FileExistsError:
            return [smb3structs.SMB2Error()], None, nt_errors.STATUS_OBJECT_NAME_COLLISION
        except OSError:
            return [smb3structs.SMB2Error()], None, nt_errors.STATUS_ACCESS_DENIED
        if asked["FileInfoClass"] == _RENAME:
            opened["FileName"] = target
        return [smb3structs.SMB2SetInfo_Response()], None, nt_errors.STATUS_SUCCESS

    return set_info


def _with_real_words(plain: Any) -> Any:
    """What real servers answer to an open: what was done, how large it is, what is missing."""
    from impacket import nt_errors, smb3structs

    def create(connection: Any, server: Any, packet: Any) -> Any:
        answers, rest, status = plain(connection, server, packet)
        asked = smb3structs.SMB2Create(packet["Data"])
        if status == nt_errors.STATUS_SUCCESS:
            done = {1: 1, 2: 2, 4: 3}.get(asked["CreateDisposition"], 2)
            answers[0]["CreateAction"] = done
            opened = server.getConnectionData(connection)["OpenedFiles"]
            handle = opened[answers[0]["FileID"]]["FileHandle"]
            if handle > 2:  # Of the open file, not of what its name means a moment later.
                answers[0]["EndOfFile"] = os.fstat(handle).st_size
        elif status == nt_errors.STATUS_NO_SUCH_FILE:
            status = nt_errors.STATUS_OBJECT_NAME_NOT_FOUND
        elif status == nt_errors.STATUS_ACCESS_DENIED:
            shares = server.getConnectionData(connection)["ConnectedShares"]
            name = asked["Buffer"][: asked["NameLength"]].decode("utf-16le").replace("\\", "/")
            path = os.path.join(shares[packet["TreeID"]]["path"], name)
            if not os.path.isdir(os.path.dirname(path)):
                status = nt_errors.STATUS_OBJECT_PATH_NOT_FOUND
        return answers, rest, status

    return create


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
