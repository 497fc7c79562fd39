"""A little shell that runs ``offsetlog`` in this process, as fast as a function call.

It knows pipes, ``> file``, ``export`` and quoting; other programs are run for real. What is
printed on both streams is kept, with the exit status, as a person at a terminal would see it.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import warnings
from contextlib import contextmanager
from typing import NamedTuple

from offsetlog.cli.main import main

PROGRAM = [sys.executable, "-m", "offsetlog"]
CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Result(NamedTuple):
    status: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


@contextmanager
def _streams(stdin: bytes):
    kept = sys.stdin, sys.stdout, sys.stderr
    out, err = io.BytesIO(), io.BytesIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
    sys.stdout = io.TextIOWrapper(out, encoding="utf-8", write_through=True)
    sys.stderr = io.TextIOWrapper(err, encoding="utf-8", write_through=True)
    try:
        yield out, err
    finally:
        sys.stdin, sys.stdout, sys.stderr = kept


def offsetlog(*arguments: object, stdin: bytes = b"") -> Result:
    """Run the program's own entry point here."""
    with warnings.catch_warnings(), _streams(stdin) as (out, err):
        status = main([str(argument) for argument in arguments])
        sys.stdout.flush()
        return Result(status, out.getvalue(), err.getvalue().decode())


def environment(**more: str) -> dict[str, str]:
    """For a process of its own."""
    return {**os.environ, "PYTHONPATH": CHECKOUT, **more}


def sh(line: str) -> Result:
    """Run one line: a pipeline of commands."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|>")
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    for word in lexer:
        commands.append([]) if word == "|" else commands[-1].append(word)
    data, err, status = b"", "", 0
    for words in commands:
        target = None
        if ">" in words:
            words, target = words[: words.index(">")], words[-1]
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            os.environ[name] = value
            continue
        if words[0] == "offsetlog":
            status, data, said = offsetlog(*words[1:], stdin=data)
            err += said
        else:
            if words[0] == "python":
                words[0] = sys.executable
            done = subprocess.run(words, input=data, capture_output=True, timeout=20, check=False)
            status, data = done.returncode, done.stdout
            err += done.stderr.decode()
        if target is not None:
            with open(target, "wb") as file:
                file.write(data)
            data = b""
    return Result(status, data, err)


class Step(NamedTuple):
    command: str
    expected: str


def read_transcript(text: str) -> list[Step]:
    """Commands behind ``$ ``, each with what is expected below it; lines with # are prose."""
    steps: list[Step] = []
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if line.startswith("$ "):
            steps.append(Step(line[2:], ""))
        elif steps and line.strip():
            steps[-1] = Step(steps[-1].command, f"{steps[-1].expected}{line.rstrip()}\n")
    return steps


def shown(result: Result) -> str:
    """What a person would see, without empty lines; and the status if it is not 0."""
    text = result.out.decode(errors="backslashreplace") + result.err
    if result.status:
        text += f"[exit {result.status}]\n"
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines() if line.strip())


def matches(expected: str, found: str) -> bool:
    """Equal, where ``...`` in what is expected stands for anything within a line."""
    pattern = "[^\n]*".join(re.escape(part) for part in expected.split("..."))
    return re.fullmatch(pattern, found) is not None
