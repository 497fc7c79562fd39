"""The one table of filesystems, and what repeats it for readers."""

from __future__ import annotations

import ast
import configparser
import importlib
import re

import pytest

from offsetlog.errors import InvalidRequestError
from offsetlog.filesystems import FILESYSTEMS, OF_PROTOCOL, UNPROVEN, hadoop_url, what_works
from offsetlog.storage import Store, open_store
from tests.servers.process import ROOT


@pytest.mark.parametrize("filesystem", FILESYSTEMS, ids=lambda one: one.name)
def test_each_has_a_store(filesystem):
    module, _, kind = filesystem.store.partition(":")
    assert issubclass(getattr(importlib.import_module(module), kind), Store)
    if filesystem.package:
        importlib.import_module(filesystem.package)
        assert filesystem.credentials and filesystem.credential_options


def test_protocols_are_one_filesystems_each():
    protocols = [protocol for one in FILESYSTEMS for protocol in one.protocols]
    assert len(set(protocols)) == len(protocols) == len(OF_PROTOCOL)
    assert not set(UNPROVEN) & set(protocols)


def test_the_readme_has_the_same_rows():
    text = (ROOT / "README.md").read_text().partition("## Filesystems\n")[2].partition("\n\n")[0]
    rows = re.findall(r"\| (.*?) \| (.*?) \|", text)[1:]
    assert [row for row in rows if row[0] != "---"] == [
        (one.name, one.decides) for one in FILESYSTEMS
    ]


def test_the_extras_bring_the_packages():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    extras = config["options.extras_require"]
    for one in FILESYSTEMS:
        if one.package:
            assert extras[one.extra].strip().startswith(f"{one.package}>=")


def test_no_other_module_has_a_list_of_them():
    """Two of these names in one module of the product are a second list."""
    names = {protocol for one in FILESYSTEMS[2:] for protocol in one.protocols}
    names |= {one.package for one in FILESYSTEMS if one.package} - names
    lists = {}
    for path in [*(ROOT / "offsetlog").rglob("*.py"), *(ROOT / "spark_plugin").rglob("*.py")]:
        tree = ast.parse(path.read_text())
        texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        found = {t.removesuffix("://") for t in texts if isinstance(t, str)} & names
        filesystems = {one.name for one in FILESYSTEMS if found & {*one.protocols, one.package}}
        if len(filesystems) > 1:
            lists[str(path.relative_to(ROOT))] = found
    assert set(lists) == {"offsetlog/filesystems.py"}, lists


def test_an_error_says_what_works():
    with pytest.raises(InvalidRequestError) as error:
        open_store("nonsense://x")
    assert what_works() in str(error.value)
    assert "s3://" in what_works() and "smb://" in what_works()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://bucket/a b/100%/log", "s3a://bucket/a b/100%/log"),
        ("s3a://bucket", "s3a://bucket"),
        ("gcs://bucket/log", "gs://bucket/log"),
        ("abfs://box@account.dfs.core.windows.net/log", "abfss://box@account.dfs.core.windows.net/log"),
        # The account is an option of fsspec's, or what stands before the @ is a user.
        ("az://box/log", None),
        ("s3://user@bucket/log", None),
        ("sftp://host/log", None),
        ("file:///log", None),
        ("/log", None),
        ("simplecache::s3://bucket/log", None),
    ],
)  # fmt: skip
def test_hadoops_words_for_a_place(url, expected):
    assert hadoop_url(url) == expected
