"""No secret is in any text: not in a message, a repr, a traceback, a URL or a report."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from offsetlog.errors import OffsetLogError
from offsetlog.redact import Redactor, safe_url
from offsetlog.storage import Unknown, open_store
from offsetlog.storage.shared.sftp import SftpStore
from offsetlog.testing import check_store

KEY = "AKIAQQQQSECRETKEYID1"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
TOKEN = "FwoGZXIvYXdzEBYaDHsessiontokensecret"
PASSWORD = "p4ss:w0rd/with+odd"
ACCOUNT_KEY = "c2VjcmV0LWFjY291bnQta2V5LXNlY3JldA=="
SAS = "sv=2023-01-01&ss=b&sig=s1gn4tur3%2Bsecret%3D&se=2030"
ALL = (KEY, SECRET, TOKEN, PASSWORD, ACCOUNT_KEY, "s1gn4tur3", "p4ss")


def provoked(store: Any) -> list[str]:
    """Every text that the store's failures make."""
    texts = [repr(store), str(store.url)]
    calls: list[Callable[[], Any]] = [
        lambda: store.get("a/b"),
        lambda: store.get("a/b", -8),
        lambda: store.info("a/b"),
        lambda: list(store.list("a")),
        lambda: list(store.folders("")),
        lambda: store.put("a/b", b"x"),
        lambda: store.offer(b"x", "a/b").put("a/b"),
        lambda: store.delete(["a/b"]),
        lambda: store.delete_tree("a"),
    ]
    failed = 0
    for call in calls:
        try:
            result = call()
        except OffsetLogError as error:
            failed += 1
            texts += [str(error), repr(error), traceback.format_exc()]
            texts.append(repr(pickle.loads(pickle.dumps(error))))
            # A chain that is not printed may still be walked by a debugger's printer.
            assert error.__cause__ is None
        else:
            if isinstance(result, Unknown):
                failed += 1
                texts.append(result.error)
    assert failed, "nothing failed, so nothing was shown"
    return texts


def assert_none_shown(texts: list[str], *secrets: str) -> None:
    for text in texts:
        for secret in (*ALL, *secrets):
            assert secret not in text, text


QUICK: dict[str, Any] = {
    "config_kwargs": {"retries": {"max_attempts": 0}, "connect_timeout": 1, "read_timeout": 1}
}


def test_s3_with_wrong_credentials(seaweedfs: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    options = {**seaweedfs.options, "key": KEY, "secret": SECRET, "token": TOKEN}
    assert_none_shown(provoked(open_store("s3://offsetlog/x", **options)))
    assert_none_shown([caplog.text])


def test_s3_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    options = {"key": KEY, "secret": SECRET, "endpoint_url": "http://127.0.0.1:1", **QUICK}
    assert_none_shown(provoked(open_store("s3://bucket/x", **options)))


def test_s3_without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = open_store("s3://bucket/x", endpoint_url="http://127.0.0.1:1", use_listings_cache=False)
    with pytest.raises(OffsetLogError, match="no complete credentials") as caught:
        store.get("a")
    assert "AWS_ACCESS_KEY_ID" in caught.value.hint
    assert not caught.value.retryable


def test_s3_with_an_option_that_is_none(seaweedfs: Any) -> None:
    options = {**seaweedfs.options, "client_kwargs": {"nosuch": SECRET}}
    assert_none_shown(provoked(open_store("s3://offsetlog/x", **options)))


def test_gcs_with_a_wrong_token(fake_gcs: Any, caplog: pytest.LogCaptureFixture) -> None:
    options = {**fake_gcs.options, "token": {"private_key": SECRET, "client_email": "a@b"}}
    assert_none_shown(provoked(open_store("gs://offsetlog/x", **options)))
    assert_none_shown([caplog.text])


def test_gcs_without_the_bucket(fake_gcs: Any) -> None:
    store = open_store("gs://nosuchbucket/x", **fake_gcs.options)
    with pytest.raises(OffsetLogError, match="bucket"):
        store.put("a", b"x")


def test_azure_with_a_wrong_key(azurite: Any) -> None:
    where = azurite.options["connection_string"].partition("BlobEndpoint=")[2]
    text = (
        f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={ACCOUNT_KEY};"
        f"BlobEndpoint={where}"
    )
    store = open_store("abfs://offsetlog/x", connection_string=text)
    texts = provoked(store)
    assert_none_shown(texts)
    assert any("access denied" in text for text in texts)


def test_azure_with_a_broken_connection_string() -> None:
    texts = provoked(open_store("abfs://c/x", connection_string=f"AccountKey={ACCOUNT_KEY}"))
    assert_none_shown(texts)


def test_azure_with_a_wrong_sas(azurite: Any) -> None:
    port = azurite.http_port
    text = f"BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;SharedAccessSignature={SAS}"
    assert_none_shown(provoked(open_store("abfs://offsetlog/x", connection_string=text)))


def test_azure_without_the_container(azurite: Any) -> None:
    store = open_store("abfs://nosuch/x", **azurite.options)
    with pytest.raises(OffsetLogError, match="the container does not exist"):
        store.get("a")


def test_sftp_with_a_wrong_password(sftp: Any) -> None:
    from urllib.parse import quote

    port = sftp.options["port"]
    plain = {"look_for_keys": False, "allow_agent": False}
    stores = [
        open_store(sftp.url, **{**sftp.options, "password": PASSWORD}),
        open_store(f"sftp://offsetlog:{quote(PASSWORD, safe='')}@127.0.0.1:{port}/tmp", **plain),
    ]
    for store in stores:
        texts = provoked(store)
        assert_none_shown(texts, quote(PASSWORD, safe=""))
        assert any("refused the login" in text for text in texts)


def test_smb_with_a_wrong_password(smb: Any) -> None:
    texts = provoked(open_store(smb.url, **{**smb.options, "password": PASSWORD}))
    assert_none_shown(texts)
    assert any("refused the login" in text for text in texts)


def test_the_exception_behind_an_error_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a client may put into its own words."""
    import fsspec.implementations.sftp as sftp_module

    def refuse(*about: object, **more: object) -> None:
        raise RuntimeError("cannot log in with tok-not-known-to-anybody")

    monkeypatch.setattr(sftp_module, "SFTPFileSystem", refuse)
    store = SftpStore("sftp", "/x", "sftp://h/x", {"password": "tok-not-known-to-anybody"})
    assert_none_shown(provoked(store), "tok-not-known")


def test_a_filesystem_without_a_proven_way() -> None:
    store = open_store("ftp://127.0.0.1:1/x", username="u", password=PASSWORD, timeout=1)
    assert_none_shown(provoked(store))


def test_a_url_with_a_user_part_and_a_query() -> None:
    store = open_store(f"http://user:{SECRET}@127.0.0.1:1/x?{SAS}")
    assert store.url == "http://127.0.0.1:1/x"
    assert_none_shown(provoked(store))


def test_secrets_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("MY_PASSWORD", "hunter2hunter2")
    open_store("memory://environment")
    text = Redactor()(f"signing with {SECRET} and hunter2hunter2 failed")
    assert_none_shown([text], "hunter2")


def test_the_report_of_the_suite(seaweedfs: Any) -> None:
    options = {**seaweedfs.options, "key": KEY, "secret": SECRET}
    report = check_store("s3://offsetlog/x", options, processes=2, rounds=2)
    assert not report.passed
    assert_none_shown([str(report), repr(report), str(report.to_dict())])


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("GET https://h/p?sv=1&sig=abc%2Fdef&x=1 failed", "abc%2Fdef"),
        ("header Authorization: Bearer eyJhbGciOi.abc.def", "eyJhbGciOi"),
        ("Authorization: AWS4-HMAC-SHA256 Credential=AK/2026, Signature=ff00ff", "ff00ff"),
        ("X-Amz-Signature=deadbeef&a=b", "deadbeef"),
        ("AccountName=a;AccountKey=QUJD==;", "QUJD"),
        ("smb://me:pw1234@host/share", "pw1234"),
        ("key AKIAIOSFODNN7EXAMPLE is not known", "AKIAIOSFODNN7EXAMPLE"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "MIIE"),
        ("password=hunter2 rejected", "hunter2"),
    ],
)
def test_shapes(text: str, secret: str) -> None:
    assert secret not in Redactor()(text)


def test_what_is_harmless_stays() -> None:
    redact = Redactor("s3://bucket/x", {"endpoint_url": "http://host:9000", "anon": "true"})
    assert redact("no answer from http://host:9000/bucket") == (
        "no answer from http://host:9000/bucket"
    )
    assert safe_url("sftp://u:p@host:22/a?x=1") == "sftp://host:22/a"
    assert len(redact("x" * 5000)) < 700
