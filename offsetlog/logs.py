"""Loggers whose lines hold no secret and no unprintable text, whatever is given to them."""

from __future__ import annotations

import logging

from offsetlog.redact import hide
from offsetlog.text import printable, shortened

_MAX_TRACE = 20_000
_traces = logging.Formatter()


def get_logger(name: str) -> logging.Logger:
    """The logger of a module."""
    logger = logging.getLogger(name)
    logger.addFilter(clean)
    return logger


def clean(record: logging.LogRecord) -> bool:
    """Let the record pass, with the text that may be shown."""
    try:
        text = record.getMessage()
    except Exception as error:  # noqa: BLE001 - an argument's own __str__
        text = f"{record.msg} ({type(error).__name__})"
    record.msg, record.args = shortened(printable(hide(text))), None
    if record.exc_info:
        record.exc_text = clean_trace(_traces.formatException(record.exc_info))
        record.exc_info = None
    return True


def clean_trace(text: str) -> str:
    """A traceback, which has lines of its own."""
    return shortened(printable(hide(text), keep="\n"), _MAX_TRACE)
