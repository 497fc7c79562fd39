"""The one checker of what a caller gives, at the public door.

Invariants:

1. A public function names a rule for each of its arguments; one that forgets an argument can't be
   imported. A default is let be.
2. A rule gives the plain value (of numpy's 5 the int, of a generator a tuple), or raises an
   ``InvalidRequestError`` that names the argument, the value, and what is allowed.
3. All arguments are checked before anything happens, and none is waited for or walked for ever.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from offsetlog.errors import InvalidRequestError, OffsetLogError
from offsetlog.text import quoted
from offsetlog.values import MAX_OFFSET, TopicPartition, check_name, did_you_mean

MAX_ITEMS = 1_000_000
MAX_ID = 1024
_ARG = inspect.Parameter
F = TypeVar("F", bound=Callable[..., Any])


class Rule(NamedTuple):
    """What an argument may be, in words; and a function that gives the plain value of a right one,
    and raises whatever it likes for another."""

    allowed: str
    take: Callable[[Any], Any]

    def __call__(self, name: str, value: object) -> Any:
        try:
            return self.take(value)
        except OffsetLogError:
            raise
        except Exception as error:  # noqa: BLE001 - also what a caller's own object raises
            raise InvalidRequestError(
                f"{name} is {quoted(value)}.", f"Allowed: {self.allowed}."
            ) from (None if type(error) in (TypeError, ValueError) else error)


def checked(**rules: Rule) -> Callable[[F], F]:
    """Check the arguments of a call by these rules, one for each argument of the function. Those of
    ``*args`` and ``**kwargs`` are checked one by one."""

    def decorate(function: F) -> F:
        parameters = _parameters(function, rules)
        first = len(parameters) - len(rules)  # 1 where there is a ``self``.
        names = [name for name in parameters if name in rules]
        kinds = {parameters[name].kind: name for name in names}
        rest = kinds.get(_ARG.VAR_POSITIONAL)
        others = kinds.get(_ARG.VAR_KEYWORD)
        by_place = [
            name
            for name in names
            if parameters[name].kind in (_ARG.POSITIONAL_ONLY, _ARG.POSITIONAL_OR_KEYWORD)
        ]
        known = [name for name in names if name not in (rest, others)]
        defaults = {name: parameters[name].default for name in known}

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            out = list(args)
            for place, value in enumerate(args[first:]):
                name = by_place[place] if place < len(by_place) else rest
                # Of one too many Python itself says so.
                if name is not None and (name == rest or value is not defaults[name]):
                    out[first + place] = rules[name](name, value)
            for name, value in kwargs.items():
                rule = name if name in defaults else others
                if rule is None:
                    raise InvalidRequestError(
                        f"{_name_of(function)}() has no argument {name!r}.",
                        did_you_mean(name, known),
                    )
                if rule == others or value is not defaults[name]:
                    kwargs[name] = rules[rule](name, value)
            return function(*out, **kwargs)

        call.rules = rules  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


def checks_itself(**rules: Rule) -> Callable[[F], F]:
    """For a function whose body applies these rules: it is called too often for another call around
    it, or must give its result to the caller with nothing in between."""

    def decorate(function: F) -> F:
        _parameters(function, rules)
        function.rules = rules  # type: ignore[attr-defined]
        return function

    return decorate


def _name_of(function: Callable[..., Any]) -> str:
    """As its callers write it: ``producer`` makes a ``Producer``."""
    if function.__name__ == "__init__":
        return function.__qualname__.split(".")[-2].lower()
    return function.__name__


def _parameters(
    function: Callable[..., Any], rules: Mapping[str, Rule]
) -> Mapping[str, inspect.Parameter]:
    """The arguments of a function, which have a rule each."""
    parameters = inspect.signature(function).parameters
    names = [name for name in parameters if name != "self"]
    if set(names) != set(rules):
        raise TypeError(f"{function.__qualname__} takes {names}, and has rules for {[*rules]}")
    return parameters


# --- numbers -----------------------------------------------------------------------------------


def to_whole(value: object) -> int:
    """A whole number, numpy's too; 17.9 is none, and neither are 17.0 and True."""
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        raise TypeError
    return operator.index(value)  # type: ignore[arg-type]


def whole(low: int, high: int) -> Rule:
    def take(value: object) -> int:
        number = to_whole(value)
        if not low <= number <= high:
            raise ValueError
        return number

    return Rule(f"whole numbers from {low} to {high}", take)


def number(low: float, high: float) -> Rule:
    def take(value: object) -> float:
        out = _to_number(value)
        if not low <= out <= high:
            raise ValueError
        return out

    return Rule(f"{low} to {high}", take)


def _to_number(value: object) -> float:
    try:
        return to_whole(value)
    except TypeError:
        if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
            raise
    if getattr(value, "ndim", 0):
        raise TypeError  # An array of one.
    out = float(value)
    if math.isnan(out):
        raise ValueError
    return out


def _to_seconds(value: object) -> float:
    return max(0.0, float(min(_to_number(value), 1e12)))


SECONDS = Rule("seconds, as a number", _to_seconds)
"""A time to wait; one below 0 has passed."""
WHOLE = Rule("a whole number", whole(-MAX_OFFSET, MAX_OFFSET).take)
OFFSET = PARTITION = WHOLE
"""Which of them there are only the topic knows."""
TIME_MS = Rule("a whole number of milliseconds since 1970", WHOLE.take)


# --- texts -------------------------------------------------------------------------------------


def to_text(value: object) -> str:
    """Text that can be written at all: halves of characters can't."""
    if not isinstance(value, str):
        raise TypeError
    value.encode()
    return str(value)


def short_text(longest: int = MAX_ID) -> Rule:
    def take(value: object) -> str:
        text = to_text(value)
        if not 1 <= len(text) <= longest:
            raise ValueError
        return text

    return Rule(f"text of 1 to {longest} characters that can be written as UTF-8", take)


def name_of(what: str) -> Rule:
    return Rule(f"the name of a {what}", lambda value: check_name(value, what))


def one_of(*choices: str) -> Rule:
    def take(value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError
        return value

    return Rule(", ".join(choices), take)


def to_path(value: object) -> str:
    if not isinstance(value, str | os.PathLike):
        raise TypeError
    path = os.fspath(value)
    if not isinstance(path, str) or not path or "\0" in path:
        raise ValueError
    return path


TOPIC = name_of("topic")
GROUP = name_of("group")
PATH = Rule("a path", to_path)
PLACE = Rule("a path or a URL", to_path)


# --- the rest ----------------------------------------------------------------------------------


def _to_flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise TypeError


def _to_callable(value: object) -> object:
    if not callable(value):
        raise TypeError
    return value


def to_partition(value: object) -> TopicPartition:
    if not isinstance(value, tuple) or len(value) != 2:
        raise InvalidRequestError(
            f"{quoted(value)} is not a partition.", 'Name it as ("orders", 0).'
        )
    return TopicPartition(TOPIC("The topic", value[0]), PARTITION("The partition", value[1]))


FLAG = Rule("True or False", _to_flag)
CALLBACK = Rule("something that can be called", _to_callable)
TOPIC_PARTITION = Rule('a pair such as ("orders", 0)', to_partition)
ANYTHING = Rule("anything", lambda value: value)
"""For an argument that a function checks as a whole, or hands on to whoever knows it."""


def many(item: Rule, *, alone: bool = False) -> Rule:
    """Several of them; ``alone``: or one as it is."""

    def take(value: object) -> tuple[Any, ...]:
        if isinstance(value, str | bytes):
            if not alone:
                raise TypeError
            value = (value,)
        if not isinstance(value, Iterable):
            raise TypeError
        items = tuple(islice(value, MAX_ITEMS + 1))
        if len(items) > MAX_ITEMS:
            raise InvalidRequestError(f"There are more than {MAX_ITEMS:,} items.", "Give fewer.")
        return tuple(item("one of them", part) for part in items)

    return Rule(f"a list, each {item.allowed}", take)


def mapping(key: Rule, value: Rule) -> Rule:
    """A dict of them."""

    def take(given: object) -> dict[Any, Any]:
        if not isinstance(given, Mapping):
            raise TypeError
        return {key("a key", k): value(f"the value of {quoted(k)}", v) for k, v in given.items()}

    return Rule(f"a mapping from {key.allowed} to {value.allowed}", take)


def _to_setting(value: object) -> object:
    """The value of a topic's setting, as text or number."""
    if isinstance(value, str):
        return to_text(value)
    return value if isinstance(value, float) else WHOLE.take(value)


TEXT = Rule("text", to_text)
CONFIG = mapping(TEXT, Rule("text or a number", _to_setting))
