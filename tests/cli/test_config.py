"""Settings files, and the samples in conf/."""

from __future__ import annotations

from pathlib import Path

import pytest

import offsetlog as library
from offsetlog.cli.config import load, read
from offsetlog.cli.session import CliSession
from offsetlog.errors import InvalidRequestError
from offsetlog.storage.open import parse_option

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


def test_which_file_is_read(place, monkeypatch):
    assert load(None).root is None
    (place / "offsetlog.toml").write_text('root = "second"')
    assert load(None).root == "second"
    (place / "conf").mkdir()
    (place / "conf" / "offsetlog.toml").write_text('root = "first"')
    assert load(None).root == "first"
    (place / "other.toml").write_text('root = "other"')
    monkeypatch.setenv("OFFSETLOG_CONFIG", "other.toml")
    assert load(None).root == "other"
    assert load("offsetlog.toml").root == "second"
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


@pytest.mark.parametrize("name", ["url", "single_writer"])
def test_options_that_are_ours_are_refused(name, place):
    session = CliSession()
    session.storage[name] = "x"
    with pytest.raises(InvalidRequestError, match="not a storage option"):
        session.open()
