"""Input that nobody expects: to the Python API, the command line, settings and Spark's options.

1. Every call ends soon: as what was asked for, or with an error of ours (``OffsetLogError``; on the
   command line one line and status 1 or 2; for Spark ``InvalidRequestError``).
2. What the annotation of an argument excludes is refused, by the argument's name.
3. What is refused changes nothing: no half topic, no group, no file.
4. A message is one line that can be printed, of a bounded length, whatever was given.
5. At the end the log is sound, and takes records.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import random
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import click

import offsetlog
from offsetlog import arguments, errors
from offsetlog.arguments import CALLBACK
from offsetlog.cli import config
from offsetlog.cli.main import COMMANDS, program
from offsetlog.client.log import Log
from offsetlog.errors import InvalidRequestError, OffsetLogError
from pyspark_offsetlog.options import check
from tests.cli.shell import offsetlog as shell
from tests.client.calls import ODD, Calls
from tests.generators.registry import OPERATIONS, Bug
from tests.simulation.planting import patched

STEPS = 60
HANGS_AFTER = 60.0
REMOVAL = re.compile(r".+ will be (?:deleted|erased|removed)\b")
"""What a command that can't be undone says first."""
LONGEST = 4200
"""Of a message: what is wrong and the hint are bounded each."""

# --- odd values ----------------------------------------------------------------------------

TEXTS = [
    "", " ", "t", "orders", "T", "0", "-1", "1e3", "17.9", "true", "none", "latest", "earliest",
    "9" * 30, "-" * 20, "../../x", "a/b", "\x1b[2J", "a\nb", "\udc80", "\u202e",
    "x" * 8000, "é" * 8000, "\n" * 8000,
    "{", "[]", '{"t":{"0":-2}}', '{"t":{"0":' + "9" * 25 + "}}", "{" * 2000, '{"t":[0,1]}', "t:0,1",
    "P1D", "PT" + "9" * 30 + "S", "2026-01-01T00:00:00Z", "9999-99-99", "0:1,1:2", "0:-1", "k=v",
    "retention.ms=5", "retention.ms=x", "cleanup.policy=compact", "%s%n", "$(id)", "--", "-h",
    "[a-z]+", "(a+)+$", "*", "\\", "\t", "é", "漢", "0x10", "+5", "1_000", "NaN", "inf", "5,5",
]  # fmt: skip


def odd(chance: random.Random, depth: int = 0) -> Any:
    """Any value at all."""
    kind = chance.randrange(12 if depth < 2 else 8)
    if kind < 3:
        return chance.choice(ODD)()
    if kind < 5:
        return chance.choice(TEXTS)
    if kind == 5:
        return chance.choice([0, 1, -1, 2, 100, 2**31, 2**63, 10 ** chance.randrange(400)])
    if kind == 6:
        return chance.uniform(-10, 10) * 10 ** chance.randrange(-5, 300)
    if kind == 7:
        return bytes(chance.randrange(256) for _ in range(chance.randrange(20)))
    many = [odd(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind == 8:
        return many
    if kind == 9:
        return tuple(many)
    if kind == 10:
        return {_hashable(odd(chance, depth + 1)): value for value in many}
    return (value for value in many)


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except Exception:
        return repr(type(value))
    return value


EXCLUDED: dict[str, Callable[[Any], bool]] = {
    "int": lambda v: isinstance(v, bool | float | str | bytes | list | dict | complex),
    "str": lambda v: isinstance(v, bool | int | float | bytes | list | dict | complex),
    "bool": lambda v: (
        isinstance(v, int | float | str | bytes | list | dict | complex) and not isinstance(v, bool)
    ),
    "float": lambda v: isinstance(v, bool | str | bytes | list | dict | complex) or v != v,
    "bytes": lambda v: isinstance(v, int | float | str | list | dict | complex),
}


def is_excluded(annotation: str, value: Any) -> bool:
    """Whether the annotation says that this can't be right; where it doesn't say, nothing is."""
    kind = annotation.removesuffix(" | None")
    judge = EXCLUDED.get(kind)
    if judge is None or (value is None and annotation != kind):
        return False
    try:
        return bool(value is None or judge(value))
    except Exception:
        return False


# --- a history -----------------------------------------------------------------------------


class Hung(BaseException):
    """A call does not end."""


@contextmanager
def ends_soon(what: object) -> Iterator[None]:
    """Nothing hangs. Only the main thread can be woken."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def wake(number: int, frame: object) -> None:
        raise Hung(what)

    before = signal.signal(signal.SIGALRM, wake)
    signal.setitimer(signal.ITIMER_REAL, HANGS_AFTER)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class History:
    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self.folder = folder
        self.counts = Counter[str]()

    def run(self) -> None:
        kinds: list[Callable[[], object]] = [
            self._python, self._python, self._command, self._settings, self._spark, self._create,
        ]  # fmt: skip
        with Calls(self.folder) as self.calls:
            for _ in range(STEPS):
                self.counts[OPERATIONS] += 1
                self.chance.choice(kinds)()
            self._end()

    def _check_message(self, error: OffsetLogError) -> None:
        self.counts["refused"] += 1
        text = str(error)
        assert text.isprintable(), ("a message is no line", text[:500])
        assert len(text) < LONGEST, ("a message is too long", len(text), text[:200])

    def _files(self) -> set[str]:
        return {str(path) for path in (self.folder / "log").rglob("*") if path.name[0] != "."}

    # --- Python ----------------------------------------------------------------------------

    def _python(self) -> None:
        name = self.chance.choice(sorted(set(Calls.NAMES) - UNSAFE))
        holder, right = Calls.NAMES[name]
        function: Any = offsetlog.open
        if name != "open":
            holder_name, _, method = name.partition(".")
            function = getattr(HOLDERS[holder_name], method)
        parameters = inspect.signature(function).parameters
        names = [n for n in parameters if n != "self"]
        given = {}
        for argument in self.chance.sample(names, self.chance.randrange(1, min(3, len(names)) + 1)):
            value = odd(self.chance)
            if argument in ("url", "offsets_table", "path") and isinstance(
                value, str | os.PathLike
            ):
                continue  # No place outside of the folder.
            given[argument] = value
        wrong = {
            argument
            for argument, value in given.items()
            if is_excluded(str(parameters[argument].annotation), value)
        }
        if any(type(value).__name__ == "count" for value in given.values()):
            return  # A million is walked: the tests of the checker have it.
        what = (name, {argument: repr_of(value) for argument, value in given.items()})
        with ends_soon(what):
            try:
                self.calls.call(name, **given)
            except OffsetLogError as error:
                self._check_message(error)
                return
            except Exception as error:
                if any(function.rules.get(argument) is CALLBACK for argument in given):
                    return  # What a callback raises is its owner's.
                raise AssertionError(("a raw error", *what)) from error
        assert not wrong, ("not refused", wrong, *what)
        self.counts["taken"] += 1

    def _create(self) -> None:
        """Topics are created whole, or not at all."""
        name = self.chance.choice(["one", "two", "a.b", *TEXTS])
        partitions = self.chance.choice([1, 2, 0, -1, 100_001, 2**40, 1.0, "2"])
        settings: Any = {
            self.chance.choice(SETTINGS if self.chance.random() < 0.6 else TEXTS): (
                self.chance.choice([5, -1, -2, "5", "zstd", "compact", 2**70, None, "x"])
            )
            for _ in range(self.chance.randrange(3))
        }
        before = set(self.calls.log.topics())
        files = self._files()
        try:
            self.calls.log.create_topic(name, partitions, settings)
        except OffsetLogError as error:
            self._check_message(error)
            assert set(self.calls.log.topics()) == before, ("half a topic", name, settings)
            assert self._files() == files, ("files of no topic", name, settings)
            return
        made = self.calls.log.topic(name).describe()
        assert len(made.partitions) == partitions, (name, partitions)
        assert settings.keys() - {"compression"} <= made.config.keys(), (name, settings, made)
        self.calls.log.delete_topic(name, purge=True)

    # --- the command line --------------------------------------------------------------------

    def _command(self) -> None:
        words = ["--root", str(self.folder / "log"), *self._words()]
        files = self._files()
        with ends_soon(words):
            status, _, told = shell(*words, stdin=b"a\nb\n")
        assert status in (0, 1, 2), (words, status)
        assert "An unexpected error" not in told and "Traceback" not in told, (words, told[:2000])
        for line in told.splitlines():
            is_ours = line.startswith("offsetlog: ") or REMOVAL.match(line)
            assert is_ours and line.isprintable(), (words, line[:500])
            assert len(line) < LONGEST, (words, len(line))
        assert (status == 0) or told, (words, "nothing was said")
        if status == 2 and "lines before it were written" not in told:
            assert self._files() == files, ("a refused command left files", words)
            self.counts["refused"] += 1
        else:
            self.counts["taken"] += 1

    def _words(self) -> list[str]:
        chance = self.chance
        others = {"demo", "doctor", "copy", "completion", "page"}
        name = chance.choice(sorted(COMMANDS.keys() - others))
        command = program.get_command(click.Context(program), name)
        words = [name]
        if isinstance(command, click.Group):
            sub = chance.choice(sorted(command.commands))
            words.append(sub)
            command = command.commands[sub]
        assert command is not None
        for param in command.params:
            if isinstance(param, click.Argument):
                if chance.random() < 0.9:
                    words.append(chance.choice(["t", "g", "orders", self._text()]))
            elif param.name not in WAITS and chance.random() < 0.25:
                option = chance.choice(param.opts)
                words += [option] if getattr(param, "is_flag", False) else [option, self._text()]
        if chance.random() < 0.1:
            words.insert(chance.randrange(len(words)), self._text())
        # What the shell hands over has no NUL, and no root but ours is written to.
        return [word.replace("\0", "") for word in words]

    def _text(self) -> str:
        text = self.chance.choice(TEXTS)
        return text if ".." not in text else "x"

    # --- settings files ----------------------------------------------------------------------

    def _settings(self) -> None:
        chance = self.chance
        values = [
            "5",
            "true",
            "[",
            "{}",
            "1979-05-27",
            "[" * 3000,
            "9" * 5000,
            "nan",
            '"log"',
            "'x'",
        ]
        keys = ["root", "root", "rot", "storage", "[storage]", "", "a.b", "x"]
        lines = [
            f"{chance.choice(keys)} = {chance.choice(values)}" for _ in range(chance.randrange(4))
        ]
        data = "\n".join(lines).encode()
        if chance.random() < 0.3:
            at = chance.randrange(len(data) + 1)
            data = data[:at] + bytes([chance.randrange(256)]) + data[at:]
        path = self.folder / "settings.toml"
        path.write_bytes(data)
        with ends_soon(data):
            try:
                settings = config.read(str(path))
            except InvalidRequestError as error:
                self._check_message(error)
                return
        written = set(re.findall(rb"(?m)^(\w+) = ", data))
        assert written <= {b"root", b"storage"}, ("an unknown key is passed over", data)
        assert settings.root is None or isinstance(settings.root, str), data
        assert isinstance(settings.storage, dict), data
        self.counts["taken"] += 1

    # --- Spark's options ---------------------------------------------------------------------

    def _spark(self) -> None:
        chance = self.chance
        parse: Callable[[dict[str, str]], object]
        table, parse = chance.choice([
            (check.SOURCE, lambda o: check.source_options(o, chance.choice([True, False, None]))),
            (check.SINK, check.sink_options), (check.TABLE, check.table_options),
        ])  # fmt: skip
        known = [option.name for option in table.values()]
        options = {"path": "memory://x"}
        if table is check.SOURCE:
            options["subscribe"] = "orders"
        for _ in range(chance.randrange(4)):
            name = chance.choice([*known, "startingOfsets", "kafka.x", "storage.key", "x", "Topic"])
            options[chance.choice([name, name.upper()])] = chance.choice([*TEXTS, "5", "earliest"])
        unknown = {
            name for name in options
            if name.lower() not in {k.lower() for k in known}
            and not name.lower().startswith(("kafka", "storage."))
        }  # fmt: skip
        with ends_soon(options):
            try:
                with contextlib.redirect_stderr(io.StringIO()):
                    parse({name.lower(): value for name, value in options.items()})
            except InvalidRequestError as error:
                self._check_message(error)
                return
            except Exception as error:
                raise AssertionError(("a raw error", options)) from error
        assert not unknown, ("an unknown option is passed over", options)
        self.counts["taken"] += 1

    # --- the end -----------------------------------------------------------------------------

    def _end(self) -> None:
        log = self.calls.log
        if "t" not in log.topics():
            log.create_topic("t")
        at = log.producer().send("t", b"last").result(30)
        assert log.topic("t").end_offsets()[at.partition] == at.offset + 1
        for name in log.topics():
            log.topic(name).describe()
        assert all(report.sound for report in log.verify()), log.verify()


PLACES = {"url", "offsets_table", "path", "to"}
SETTINGS = ["retention.ms", "compression", "x", "cleanup.policy"]
UNSAFE = {"Group.reset_topics"}
HOLDERS: dict[str, Any] = {
    "Log": offsetlog.Log, "Producer": offsetlog.Producer, "Consumer": offsetlog.Consumer,
    "Topic": offsetlog.Topic, "Group": offsetlog.Group,
}  # fmt: skip
WAITS = {"follow", "every", "file", "keys_from", "root", "config", "debug", "export", "from_file"}
"""Options that wait for more, or name other places."""


def _complete_holders() -> None:
    from offsetlog.client.notebook_html import ResetPlan
    from offsetlog.engine.append.send_buffer import ArrowFuture, SendFuture

    HOLDERS.update(ResetPlan=ResetPlan, SendFuture=SendFuture, ArrowFuture=ArrowFuture)


_complete_holders()


def repr_of(value: object) -> str:
    try:
        return repr(value)[:200]
    except Exception:
        return f"a {type(value).__name__}"


def history(seed: int, folder: Path) -> Counter[str]:
    here = os.getcwd()
    os.chdir(folder)
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if "OFFSETLOG_" in name}
    try:
        made = History(seed, folder)
        made.run()
    finally:
        os.chdir(here)
        os.environ.update(hidden)
    return made.counts


# --- planted bugs --------------------------------------------------------------------------


def _rounds() -> AbstractContextManager[None]:
    """Numbers are rounded: a sequence of 17.9 is 17."""
    return patched([(arguments, "to_whole", lambda value: int(value))])


def _half_topic() -> AbstractContextManager[None]:
    """A topic is there before its settings are looked at."""

    def create_topic(self: Any, name: str, partitions: int = 1, config: Any = None) -> Any:
        made = create(self, name, partitions)
        if config:
            made.alter(config=config)
        return made

    create = Log.create_topic
    return patched([(Log, "create_topic", create_topic)])


def _repeats_all() -> AbstractContextManager[None]:
    """A message repeats what was given, as it is."""
    return patched([(errors, "_shown", lambda text: text)])


def _unknown_keys() -> AbstractContextManager[None]:
    """A misspelt key of a settings file is passed over."""
    return patched([(config, "KEYS", ("root", "storage", "rot", "x", "a"))])


PLANTED = {
    "numbers are rounded": Bug(_rounds),
    "a topic is there before its settings are checked": Bug(_half_topic),
    "messages repeat what was given": Bug(_repeats_all),
    "misspelt settings are passed over": Bug(_unknown_keys),
}
