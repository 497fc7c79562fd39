"""The redactor finds a known secret in whatever form it comes back."""

from __future__ import annotations

import logging
import traceback
from urllib.parse import quote

import pytest

from offsetlog import redact
from offsetlog.errors import InvalidRequestError, StorageError
from offsetlog.logs import get_logger
from offsetlog.redact import Redactor, hide, know, know_environment, safe_url
from offsetlog.storage.open import open_store
from tests.secret_forms import FORMS

SECRETS = [
    "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "p4ss wörd\\with \"quotes\" and 'more' & <tags>%2f=",
    "twenty/slashes+and=equals==",
    "日本語のパスワード",
    "plainlettersonly1234",
]


def leaked(secret: str, form: str, text: str) -> bool:
    """Whether six characters in a row of what was written are still there."""
    written = FORMS[form](secret).strip("'\"")
    core = written[3:-3]
    return any(core[i : i + 8] in text for i in range(max(1, len(core) - 7)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("secret", SECRETS)
def test_every_form_of_a_secret_is_found(secret: str, form: str) -> None:
    redactor = Redactor("s3://b/l", {"secret": secret})
    text = redactor(f"signing with {FORMS[form](secret)} failed")
    assert "***" in text and not leaked(secret, form, text), text
    assert text.startswith("signing with") and text.endswith("failed")


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("s3:/KEY:SECRETX@bucket/log", "SECRETX"),
        ("sftp:/user:PASSWORD@host/x", "PASSWORD"),
        ("KEYID:SECRETX@bucket/log", "SECRETX"),
        ("s3://KEYID:SEC/RETPART@b", "RETPART"),
        ("s3://KEYID:SECX/RETPART@b", "SECX"),
        ("http://h/x;token=SECRETX", "SECRETX"),
        ("http://h/x#access_token=SECRETX", "SECRETX"),
        ("http://h/x?a=b&sig=SECRETX", "SECRETX"),
        ("dir::s3:/k:SECRETX@b", "SECRETX"),
        ("dir::s3://k:s@b/x::http://u:SECRETX@h", "SECRETX"),
        ("smb://DOM;me:SECRETX@host/share", "SECRETX"),
    ],
)
def test_no_url_shows_its_secret(url: str, secret: str) -> None:
    assert secret not in safe_url(url)
    redactor = Redactor(url)
    assert secret not in redactor(f"Invalid bucket name {url}: {secret}, {quote(url)}")
    assert secret not in str(StorageError(f"can't reach {secret}"))


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/log",
        "/data/a:b/c@d",
        "file:///data/x:y@z/#1=2",
        "./a:b@c",
        "abfs://container@account.dfs.core.windows.net/log",
        "sftp://host:22/data",
        "memory://a;b",
    ],
)
def test_a_url_without_a_secret_stays(url: str) -> None:
    assert safe_url(url) == url
    assert hide(f"There is no log at {url}.") == f"There is no log at {url}."


@pytest.mark.parametrize(
    "options",
    [
        {"password": 12345678},
        {"mappings": [{"token": "12345678"}]},
        {"client_kwargs": {"headers": {"Authorization": "12345678"}}},
        {"auth": ("me", "12345678")},
        {"connection_string": "AccountName=a;AccountKey=12345678;EndpointSuffix=x"},
        {"secret": b"12345678"},
        {"fo": "x", "proxy": "http://me:12345678@proxy"},
    ],
)
def test_options_of_every_shape(options: dict[str, object]) -> None:
    assert "12345678" not in Redactor("s3://b", options)("refused: 12345678")
    assert "12345678" not in hide("refused: 12345678")


def test_a_url_without_its_protocol_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidRequestError, match="no protocol") as refused:
        open_store("me:SECRETX@bucket/log")
    assert "SECRETX" not in str(refused.value)
    open_store("./me:SECRETX@bucket/log").close()


def test_a_number_that_is_no_secret_stays() -> None:
    assert Redactor("s3://b", {"block_size": 5242880})("of 5242880 bytes") == "of 5242880 bytes"


def test_the_environment() -> None:
    know_environment(
        {
            "MY_PASSWORD": "hunter2hunter2",
            "HTTPS_PROXY": "http://me:proxypass@proxy:3128",
            "AZURE_STORAGE_CONNECTION_STRING": "AccountName=acct;AccountKey=QUJDREVGRw==;x=y",
            "AWS_SHARED_CREDENTIALS_FILE": "/home/me/.aws/credentials",
        }
    )
    text = "hunter2hunter2 proxypass QUJDREVGRw== /home/me/.aws/credentials acct"
    assert hide(text) == "*** *** *** /home/me/.aws/credentials acct"


def test_a_short_secret_is_hidden_where_it_is_a_word() -> None:
    know(["mine"])
    assert hide("determined by mine, 'mine'") == "determined by ***, '***'"


def test_the_most_recent_are_kept() -> None:
    know(f"secret-number-{n}" for n in range(1000))
    assert hide("secret-number-999") == "***"
    assert len(redact._known._values) <= redact._MOST_KNOWN


def test_log_lines_and_traces_hide_it_too(caplog: pytest.LogCaptureFixture) -> None:
    know(["logged-secret"])
    logger = get_logger("offsetlog.tests.redact")
    try:
        try:
            raise KeyError("logged-secret")
        except KeyError as error:
            raise ValueError("with logged-secret\x1b") from error
    except ValueError:
        logger.exception("refused %s\n%s", "logged-secret", {"password": "logged-secret"})
        assert "logged-secret" in traceback.format_exc()
    assert "logged-secret" not in caplog.text and "\x1b" not in caplog.text
    assert "refused ***\\n" in caplog.text and "ValueError: with ***\\x1b" in caplog.text
    assert "KeyError" in caplog.text
    assert isinstance(caplog.records[-1], logging.LogRecord)
