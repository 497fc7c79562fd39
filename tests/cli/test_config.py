"""Settings files, and the samples in conf/."""

from __future__ import annotations

import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import offsetlog as library
from offsetlog.cli import config
from offsetlog.cli.config import load, read
from offsetlog.cli.session import CliSession
from offsetlog.errors import InvalidRequestError
from offsetlog.storage.open import parse_option
from tests.cli.shell import offsetlog

CONF = Path(__file__).parents[2] / "conf"
SAMPLES = {
    "local.toml": ("file", set()),
    "s3.toml": ("s3", {"client_kwargs"}),
    "gcs.toml": ("gs", {"project"}),
    "azure.toml": ("abfs", {"account_name", "anon"}),
}


def test_there_is_no_other_sample():
    assert {path.name for path in CONF.glob("*.toml")} == set(SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_opens_the_store_that_it_says(name):
    """No request is sent: the address and the options are taken as they are."""
    protocol, options = SAMPLES[name]
    settings = read(CONF / name)
    assert settings.root.startswith(f"{protocol}://") and set(settings.storage) == options
    assert "log" in settings.root
    with library.open(settings.root, **settings.storage) as log:
        assert log.url.startswith(protocol)
    assert "secret" not in (CONF / name).read_text().lower().replace("aws_secret_access_key", "")


def used(option):
    return load(option).settings.root


@pytest.fixture(autouse=True)
def home(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(folder))
    return folder


def test_which_file_is_read(place, home, monkeypatch):
    assert used(None) is None
    (home / ".config").mkdir()
    (home / ".config" / "offsetlog.toml").write_text('root = "of the user"')
    assert used(None) == "of the user"
    (place / "offsetlog.toml").write_text('root = "second"')
    assert used(None) == "second"
    (place / "conf").mkdir()
    (place / "conf" / "offsetlog.toml").write_text('root = "first"')
    assert used(None) == "first"
    (place / "other.toml").write_text('root = "other"')
    monkeypatch.setenv("OFFSETLOG_CONFIG", "other.toml")
    assert used(None) == "other"
    assert used("offsetlog.toml") == "second"
    monkeypatch.setenv("OFFSETLOG_CONFIG", "missing.toml")
    with pytest.raises(InvalidRequestError, match="missing.toml"):
        load(None)


def test_which_root_and_which_options_win(place, monkeypatch):
    (place / "offsetlog.toml").write_text('root = "s3://a/b"\n[storage]\nkey = "k"\nanon = true\n')
    session = CliSession()
    monkeypatch.delenv("OFFSETLOG_ROOT")
    assert session.address() == ("s3://a/b", {"key": "k", "anon": True})
    session.storage["key"] = "mine"
    assert session.address() == ("s3://a/b", {"key": "mine", "anon": True})
    monkeypatch.setenv("OFFSETLOG_ROOT", "s3://c")
    assert session.address() == ("s3://c", {"key": "mine"})
    session.root = "s3://d"
    assert session.address() == ("s3://d", {"key": "mine"})
    (place / "offsetlog.toml").write_text('[storage]\nkey = "k"\nanon = true\n')
    assert session.address() == ("s3://d", {"key": "mine", "anon": True})


def test_storage_values():
    assert parse_option("true") is True and parse_option("false") is False
    assert parse_option('{"region_name": "x"}') == {"region_name": "x"}
    assert parse_option("[1]") == [1]
    for text in ("12345", "True", "{not json", "a=b", ""):
        assert parse_option(text) == text


@pytest.mark.parametrize("name", ["url", "single_writer", "offsets_table"])
def test_options_that_are_ours_are_refused(name, place):
    session = CliSession()
    session.storage[name] = "x"
    with pytest.raises(InvalidRequestError, match="not a storage option"):
        session.open()


def test_a_file_of_the_current_folder_must_be_the_users_own(place, home, monkeypatch):
    (home / ".config").mkdir()
    (home / ".config" / "offsetlog.toml").write_text('root = "of the user"')
    file, folder = place / "conf" / "offsetlog.toml", place / "conf"
    folder.mkdir()
    file.write_text('root = "of the folder"')

    def is_passed_over(why):
        loaded = load(None)
        [passed] = loaded.passed_over
        assert why in passed.why and passed.path == "conf/offsetlog.toml"
        return loaded.settings.root == "of the user" and not loaded.settings.is_of_folder

    assert used(None) == "of the folder" and load(None).settings.is_of_folder
    file.chmod(0o660)
    monkeypatch.setattr(config, "_is_private_group", lambda about: True)
    assert used(None) == "of the folder"
    monkeypatch.setattr(config, "_is_private_group", lambda about: False)
    assert is_passed_over("can be written by other users")
    file.chmod(0o600)
    for path in (file, folder, place):
        for mode in (0o002, 0o020):
            kept = path.stat().st_mode
            path.chmod(kept | mode)
            assert is_passed_over("can be written by other users")
            path.chmod(kept)
    me = os.geteuid()
    for path, who in ((file, "it"), (folder, "its folder conf"), (place, "the current folder")):
        stat = os.stat

        def foreign(place, *rest, path=path, **named):
            about = stat(place, *rest, **named)
            same = os.path.abspath(place) == str(path)
            return os.stat_result([*about[:4], me + 1, *about[5:]]) if same else about

        monkeypatch.setattr(os, "stat", foreign)
        assert is_passed_over(f"{who} belongs to another user")
        monkeypatch.setattr(os, "stat", stat)
    file.unlink()
    os.mkfifo(file)
    assert is_passed_over("it is not a file")
    file.unlink()
    file.symlink_to(place / "nowhere")
    assert is_passed_over("it can't be looked at")


def test_a_file_that_was_passed_over_is_named(place):
    (place / "offsetlog.toml").write_text('root = "evil"')
    (place / "offsetlog.toml").chmod(0o666)
    result = offsetlog("topics", "list")
    assert "warning: the settings file offsetlog.toml is passed over: it can be written by" in (
        result.err
    )
    offsetlog("topics", "create", "t")
    # One that was named is used, whosever it is.
    assert "evil" in offsetlog("--config", "offsetlog.toml", "--root", "evil", "topics", "list").err


ENDPOINTS = [
    'endpoint_url = "http://127.0.0.1:9"',
    'client_kwargs = {endpoint_url = "http://127.0.0.1:9"}',
    'config_kwargs = {proxies = {http = "http://127.0.0.1:9"}}',
    'account_host = "127.0.0.1:9"',
    'x = [{Endpoint = "http://127.0.0.1:9"}]',
]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_no_endpoint_of_a_folder_gets_credentials_of_the_environment(endpoint, place, monkeypatch):
    monkeypatch.delenv("OFFSETLOG_ROOT")
    file = place / "offsetlog.toml"
    text = f'root = "s3://b/l"\n[storage]\n{endpoint}\n'
    file.write_text(text)
    with pytest.raises(InvalidRequestError, match="no credentials") as refused:
        CliSession().address()
    assert "--config offsetlog.toml" in str(refused.value) and "127.0.0.1" not in str(refused.value)
    named = CliSession()
    named.config = "offsetlog.toml"
    assert named.address().url == "s3://b/l"
    for own in ("anon = true", 'key = "k"\nsecret = "s"', 'token = "anon"'):
        file.write_text(f"{text.replace('[storage]', '[storage]' + chr(10) + own)}")
        assert CliSession().address().url == "s3://b/l"
    file.write_text(text)
    given = CliSession()
    given.storage["key"] = "of the command line"
    assert given.address().url == "s3://b/l"
    # The file's options are another root's.
    given = CliSession()
    given.root = "s3://other"
    assert given.address() == ("s3://other", {})
    file.write_text(f"[storage]\n{endpoint}\n")
    with pytest.raises(InvalidRequestError, match="no credentials"):
        given.address()


def test_signed_requests_do_not_reach_it(place, monkeypatch):
    """With a server that would see them."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(dict(self.headers))
            self.send_error(403)

        do_PUT = do_HEAD = do_GET

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        for name, value in (("ACCESS_KEY_ID", "AKIAX"), ("SECRET_ACCESS_KEY", "secretsecret"),
                            ("SESSION_TOKEN", "session-token-of-the-user")):  # fmt: skip
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("OFFSETLOG_ROOT", "")
        settings = f'root = "s3://b/l"\n[storage]\nendpoint_url = "http://127.0.0.1:{server.server_port}"\n'
        (place / "offsetlog.toml").write_text(settings)
        assert offsetlog("topics", "list").status == 2 and seen == []
        assert offsetlog("topics", "list", "--config", "offsetlog.toml").status
        assert any("session-token-of-the-user" in str(headers) for headers in seen)
    finally:
        server.shutdown()
        server.server_close()


def test_no_chain_from_a_folder(place, monkeypatch):
    monkeypatch.delenv("OFFSETLOG_ROOT")
    (place / "offsetlog.toml").write_text('root = "filecache::s3://b/l"')
    with pytest.raises(InvalidRequestError, match="chain of filesystems"):
        CliSession().address()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"[" * 5000, "nested too deep|not TOML"),
        (b"root = " + b"[" * 5000 + b"]" * 5000, "nested too deep|not TOML"),
        (b"root = " + b"9" * 5001, "not TOML"),
        (b"\xff", "not TOML"),
        (b"root = 'x'\n" + b"#" * 1024 * 1024, "larger than"),
    ],
)
def test_odd_files_are_named(text, why, place):
    (place / "odd.toml").write_bytes(text)
    with pytest.raises(InvalidRequestError, match=why):
        read("odd.toml")


@pytest.mark.parametrize("path", ["fifo", "/dev/zero", "\0", "x" * 5000, ".", "missing"])
def test_what_is_no_file_is_not_waited_for(path, place):
    os.mkfifo("fifo")
    with pytest.raises(InvalidRequestError, match="can't be read"):
        read(path)


def test_doctor_says_which_file_was_used(place, home):
    root = place / "log"
    (place / "conf").mkdir()
    (place / "conf" / "offsetlog.toml").write_text(f'root = "{root}"')
    (place / "conf").chmod(0o777)
    (place / "offsetlog.toml").write_text(f'root = "{root}"')
    out = offsetlog("doctor", "--processes", 2, "--rounds", 2, "--seconds", 5).text
    assert re.search(r"conf/offsetlog.toml +passed over: its folder conf can be written by", out)
    assert re.search(r"^offsetlog.toml +used$", out, re.MULTILINE)
