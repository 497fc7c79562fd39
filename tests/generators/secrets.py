"""One secret in any option, variable or URL of any filesystem, looked for in all that comes out.

Its filesystem (``leaky://``, besides real ones that don't answer) repeats in its errors all that it
was told, in the forms that libraries use: quoted, escaped, in base64, in parts.

1. The secret is in no error, warning, ``repr``, log line, traceback, message of a command (also
   with ``--debug``) or of Spark's options, in whatever form (``tests/secret_forms.py``).
2. It is in no file that was stored.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import pickle
import random
import string
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fsspec
from fsspec.spec import AbstractFileSystem

import offsetlog
from offsetlog import logs, redact
from offsetlog.cli.main import main
from offsetlog.errors import OffsetLogError, TopicExistsError
from pyspark_offsetlog.options import check
from tests.generators.registry import OPERATIONS, Bug
from tests.secret_forms import FORMS, find_secret
from tests.simulation.planting import patched

STEPS = 6


class Told(Exception):
    """What a library raises."""


class LeakyFileSystem(AbstractFileSystem):
    """Fails always, and tells all that it knows."""

    protocol = "leaky"
    cachable = False
    chance = random.Random(0)
    knows: tuple[str, ...] = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.options = options

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return str(path).partition("://")[2].rpartition("@")[2].split("?")[0] or "x"

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        return {}

    def _fail(self, *args: Any, **kwargs: Any) -> Any:
        chance = type(self).chance
        told = [FORMS[chance.choice(sorted(FORMS))](secret) for secret in type(self).knows]
        try:
            raise Told(f"with {told} and {self.options}")
        except Told as error:
            logging.getLogger("offsetlog.engine.leaky").info("never seen")
            raise chance.choice([OSError, ValueError, PermissionError, Told])(
                f"{chance.choice(told or ['x'])}: {json.dumps(told)}"
            ) from error

    ls = info = cat_file = pipe_file = _open = rm = mkdir = mkdirs = exists = created = _fail
    find = walk = makedirs = mv = rm_file = isdir = isfile = modified = _fail


fsspec.register_implementation("leaky", LeakyFileSystem, clobber=True)

ALPHABETS = (
    string.ascii_letters + string.digits,
    string.ascii_letters + string.digits + "+/=",
    string.ascii_letters + string.punctuation.replace("@", "").replace("\\", "") + " ",
    string.ascii_letters + "\\'\"%<>&",
    string.ascii_letters + "äöüß漢字кл😀",
)
OPTIONS: list[Callable[[str], dict[str, Any]]] = [
    lambda s: {"password": s}, lambda s: {"key": s, "secret": "other-secret-42"},
    lambda s: {"token": s}, lambda s: {"client_kwargs": {"headers": {"Authorization": s}}},
    lambda s: {"accounts": [{"secret": s}]}, lambda s: {"auth": ("me", s)},
    lambda s: {"secret": s.encode()}, lambda s: {"x": {"y": {"passphrase": s}}},
    lambda s: {"connection_string": f"AccountName=a;AccountKey={s}"},
]  # fmt: skip
VARIABLES = ["AWS_SECRET_ACCESS_KEY", "MY_TOKEN", "AZURE_STORAGE_ACCOUNT_KEY", "DB_PASSWORD"]
REAL: list[tuple[str, dict[str, Any]]] = [
    ("s3://bucket/log", {
        "client_kwargs": {"endpoint_url": "http://127.0.0.1:1"},
        "config_kwargs": {"retries": {"max_attempts": 0}, "connect_timeout": 1},
    }),
    ("http://127.0.0.1:1/log", {}), ("ftp://127.0.0.1:1/log", {}), ("sftp://127.0.0.1:1/log", {}),
]  # fmt: skip
PLACES = ["chain", "variable", "real", "typo"]
WRONG = ["s3:/me:{}@bucket/log", "me:{}@bucket/log", "leaky:/me:{}@h/x", "zip::leaky:/k:{}@b"]


class History:
    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        LeakyFileSystem.chance = self.chance
        self.folder = folder
        self.counts = Counter[str]()
        self.shown: list[tuple[str, str]] = []

    def run(self) -> None:
        out = io.StringIO()
        handler = logging.StreamHandler(out)
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger = logging.getLogger("offsetlog")
        before, quiet = logger.level, logging.root.manager.disable
        logging.disable(logging.NOTSET)
        logger.setLevel(logging.DEBUG)
        logger.addHandler(handler)
        propagates, logger.propagate = logger.propagate, False
        try:
            for _ in range(STEPS):
                self.counts[OPERATIONS] += 1
                self._step(out)
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)
            logger.propagate = propagates
            logging.disable(quiet)

    def _secret(self) -> str:
        letters = self.chance.choice(ALPHABETS)
        length = self.chance.randrange(12, 40)
        middle = "".join(self.chance.choice(letters) for _ in range(length))
        return f"s{middle.strip()}e"

    def _step(self, log_lines: io.StringIO) -> None:
        chance = self.chance
        secret = self._secret()
        LeakyFileSystem.knows = (secret,)
        where = chance.choice(
            ["option", "option", "URL", "URL", "chain", "variable", "real", "typo"]
        )
        self.counts[where] += 1
        root, options, variables = "leaky://host/log", {}, {}
        if where == "option":
            options = chance.choice(OPTIONS)(secret)
            if "connection_string" in options and set(secret) & set(";&="):
                options = {"password": secret}  # It can't be told apart there.
        elif where == "URL":
            written = quote(secret, safe="")
            root = chance.choice([
                f"leaky://me:{written}@host/log", f"leaky://host/log?sig={written}",
                f"leaky://host/log?a=b&access_token={written}", f"leaky://{written}:x@host/log",
            ])  # fmt: skip
        elif where == "chain":
            root = f"dir://x::leaky://me:{quote(secret, safe='')}@host/log"
        elif where == "variable":
            variables = {chance.choice(VARIABLES): secret}
        elif where == "real":
            root, real = chance.choice(REAL)
            if root.startswith("s3"):
                options = {**real, "key": "AKIAXXXXXXXXXXXXXXXX", "secret": secret}
            else:
                protocol, _, rest = root.partition("://")
                root = f"{protocol}://me:{quote(secret, safe='')}@{rest}"
            LeakyFileSystem.knows = ()
        else:
            root = chance.choice(WRONG).format(quote(secret, safe=""))
            LeakyFileSystem.knows = ()
        os.environ.update(variables)
        try:
            self._use(root, options)
        finally:
            for name in variables:
                os.environ.pop(name, None)
        self.shown.append(("a log line", log_lines.getvalue()))
        log_lines.seek(0)
        log_lines.truncate()
        self._check(secret, (where, root, options))

    def _use(self, root: str, options: dict[str, Any]) -> None:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            uses = [self._python, self._command, self._offsets, self._spark]
            for use in self.chance.sample(uses, 2):
                knows = LeakyFileSystem.knows
                use(root, options)
                LeakyFileSystem.knows = knows
        self.shown += [("a warning", str(warning.message)) for warning in told]

    def _caught(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            result = call()
        except OffsetLogError as error:
            self.counts["refused"] += 1
            self.shown += [
                (f"the error of {what}", text)
                for text in (str(error), repr(error), repr(pickle.loads(pickle.dumps(error))))
            ]
            logs.get_logger("offsetlog.tests").exception("%s failed", what)
            return None
        self.shown.append((f"the repr of {what}", repr(result)))
        return result

    def _python(self, root: str, options: dict[str, Any]) -> None:
        log = self._caught("open", lambda: offsetlog.open(root, **options))
        if log is None:
            return
        self.shown.append(("a URL", log.url))
        calls: list[tuple[str, Callable[[], Any]]] = [
            ("topics", log.topics), ("topic", lambda: log.topic("t")), ("groups", log.groups),
            ("create", lambda: log.create_topic("t")), ("verify", log.verify),
            ("maintain", log.maintain), ("send", lambda: log.producer().send("t", b"x").result(20)),
        ]  # fmt: skip
        for what, call in self.chance.sample(calls, 3):
            self._caught(what, call)
        with contextlib.suppress(OffsetLogError):
            log.close()

    def _offsets(self, root: str, options: dict[str, Any]) -> None:
        """Records on the local disk, groups where the secret is."""
        if options:
            LeakyFileSystem.knows = ()  # They are the records' alone.
        with offsetlog.open(str(self.folder / "log"), offsets_table=root) as log:
            with contextlib.suppress(TopicExistsError):
                log.create_topic("t")
            log.producer().send("t", b"x").result()
            self._caught("groups", log.groups)
            log.producer().send("t", b"y").add_done_callback(LeakyFileSystem()._fail)

            def consume() -> None:
                with log.consumer("g", ["t"]) as consumer:
                    consumer.poll()

            self._caught("consume", consume)
            if not options and self.chance.random() < 0.2:
                self._caught("copy", lambda: log.copy(root))

    def _command(self, root: str, options: dict[str, Any]) -> None:
        words = ["--debug", "topics", "list"]
        plain = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in options.items()
            if isinstance(value, str | dict)
        }
        if plain.keys() != options.keys():
            LeakyFileSystem.knows = ()  # Others can't be written there.
        if all(isinstance(value, str) for value in options.values()):
            (self.folder / "settings.toml").write_text(
                f"root = {json.dumps(root)}\n[storage]\n"
                + "".join(f"{n} = {json.dumps(v)}\n" for n, v in plain.items()),
                encoding="utf-8",
            )
            words += ["--config", str(self.folder / "settings.toml")]
        else:
            words += ["--root", root]
            for name, value in plain.items():
                words += ["--storage", f"{name}={value}"]
        out = io.StringIO()
        kept = sys.stdout, sys.stderr, logging.lastResort
        sys.stdout = sys.stderr = out
        try:
            main(words)
        finally:
            sys.stdout, sys.stderr, logging.lastResort = kept
        self.shown.append(("a command", out.getvalue()))
        (self.folder / "settings.toml").unlink(missing_ok=True)

    def _spark(self, root: str, options: dict[str, Any]) -> None:
        given = {"path": root, "subscribe": "t"}
        for name, value in options.items():
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            given[f"storage.{name}"] = text
        if self.chance.random() < 0.5:
            given["maxoffsetspertrigger"] = "x"
        parsed = self._caught("Spark's options", lambda: check.source_options(given, True))
        if parsed is not None:
            self.shown.append(("Spark's address", f"{parsed.place!r} {parsed.place.url}"))

    def _check(self, secret: str, how: object) -> None:
        shown, self.shown = self.shown, []
        for what, text in shown:
            found = find_secret(text, secret)
            assert found is None, (f"the secret is in {what}", secret, found, how)
        for path in self.folder.rglob("*"):
            if path.is_file():
                found = find_secret(path.read_bytes().decode("utf-8", "replace"), secret)
                assert found is None, ("the secret is stored", path, how)
        self.counts["texts"] += len(shown)


def history(seed: int, folder: Path) -> Counter[str]:
    made = History(seed, folder)
    with patched([(redact, "_known", redact._Known())]):
        made.run()
    assert made.counts["texts"] > STEPS
    return made.counts


# --- planted bugs --------------------------------------------------------------------------


def _plain_form() -> AbstractContextManager[None]:
    """A secret is known as it was given, and in no other form."""
    import re

    return patched([(redact, "_forms", lambda value: iter([re.escape(value)]))])


def _logs_are_not_cleaned() -> AbstractContextManager[None]:
    """Log lines and tracebacks are as they are."""
    return patched([(logs, "hide", lambda text: text)])


def _first_of_a_chain() -> AbstractContextManager[None]:
    """Of a chain of URLs the first is looked at."""
    of_url = redact._of_url
    return patched([(redact, "_of_url", lambda url: of_url(url.partition("::")[0]))])


def _variables() -> AbstractContextManager[None]:
    """Nobody looks at the environment."""
    from offsetlog.storage import open as opened

    return patched([(opened, "know_environment", lambda environment: None)])


PLANTED = {
    "a secret is known as it was given alone": Bug(_plain_form),
    "log lines and tracebacks are not looked at": Bug(_logs_are_not_cleaned),
    "the first URL of a chain is looked at": Bug(_first_of_a_chain),
    "the environment is not looked at": Bug(_variables),
}
