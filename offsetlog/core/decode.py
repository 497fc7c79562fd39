"""The strict decoder of what is stored as JSON: shapes are declared once and then applied.

Rules of this module:

1. A decoder gives a value of the right type and range, or raises ``Malformed``; it never
   converts. A boolean is not an integer, and a float is not one either.
2. A field that is missing is refused like one of the wrong type, unless the shape says otherwise.
   Fields that the shape does not name are passed over.
3. ``from_value`` and ``from_json`` are the ways in: what they raise is ``CorruptLogError``, which
   says in which file and at which field.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, TypeVar

from offsetlog.core import strict_json
from offsetlog.errors import CorruptLogError, InvalidRequestError

T = TypeVar("T")
S = TypeVar("S")
Decoder = Callable[[object], T]
MAX_ITEMS = 10_000_000


class Malformed(ValueError):
    """A value that is not what its place demands."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path

    def at(self, name: str) -> Malformed:
        """The same, one level further out."""
        name = repr(name[:60])[1:-1]
        return Malformed(self.message, f"{name}.{self.path}" if self.path else name)


_MISSING = object()
"""What a decoder gets for a field that is not there."""


def from_value(decoder: Decoder[T], value: object, where: str) -> T:
    try:
        return decoder(value)
    except Malformed as error:
        place = f"{where}: {error.path}" if error.path else where
        raise CorruptLogError(f"{place}: {error.message}.") from None


def from_json(
    decoder: Decoder[T],
    text: bytes | str,
    where: str,
    max_bytes: int = strict_json.MAX_BYTES,
    max_values: int = strict_json.MAX_VALUES,
) -> T:
    return from_value(decoder, strict_json.loads(text, where, max_bytes, max_values), where)


# --- single values ---------------------------------------------------------------------------


def integer(low: float = 0, high: float = 2**63 - 1) -> Decoder[int]:
    def decode(value: object) -> int:
        if type(value) is not int or not low <= value <= high:
            span = f" from {low} on" if low > -inf else ""
            raise Malformed(f"{_short(value)} is not a whole number{span}")
        return value

    return decode


def string(longest: float = 4096) -> Decoder[str]:
    def decode(value: object) -> str:
        if not isinstance(value, str) or len(value) > longest:
            raise Malformed(f"{_short(value)} is not a string of up to {longest}")
        return value

    return decode


def boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise Malformed(f"{_short(value)} is neither true nor false")
    return value


def hexadecimal(digits: int) -> Decoder[str]:
    def decode(value: object) -> str:
        if not isinstance(value, str) or len(value) != digits or value.strip(_HEX_DIGITS):
            raise Malformed(f"{_short(value)} is not {digits} hex digits")
        return value

    return decode


_HEX_DIGITS = "0123456789abcdef"


def anything(value: object) -> object:
    return None if value is _MISSING else value


# --- values made of values -------------------------------------------------------------------


def nullable(decoder: Decoder[T]) -> Decoder[T | None]:
    """Null, or missing, is None."""
    return lambda value: None if value is None or value is _MISSING else decoder(value)


def default(decoder: Decoder[T], instead: T) -> Decoder[T]:
    """``instead`` where the field is missing; null is refused."""
    return lambda value: instead if value is _MISSING else decoder(value)


def checked(decoder: Decoder[S], check: Callable[[S], T]) -> Decoder[T]:
    """What ``check`` makes of the value, or refuses as if a caller had given it."""

    def decode(value: object) -> T:
        try:
            return check(decoder(value))
        except InvalidRequestError as error:
            raise Malformed(error.message.rstrip(".")) from None

    return decode


def fields(**decoders: Decoder[Any]) -> Decoder[dict[str, Any]]:
    """An object with these fields, and their values."""
    pairs = tuple(decoders.items())

    def decode(value: object) -> dict[str, Any]:
        data, values, name = plain(value), {}, ""
        try:
            for name, decoder in pairs:
                values[name] = decoder(data.get(name, _MISSING))
        except Malformed as error:
            if name not in data:
                raise Malformed(f"{name!r} is missing") from None
            raise error.at(name) from None
        return values

    return decode


def record(into: Callable[..., T], **decoders: Decoder[Any]) -> Decoder[T]:
    """An object with these fields, whose values are the arguments of ``into``, in this order."""
    decode = fields(**decoders)
    return lambda value: into(*decode(value).values())


def field(name: str, decoder: Decoder[T]) -> Decoder[T]:
    """One field of an object."""
    return record(lambda value: value, **{name: decoder})


def row(into: Callable[..., T], *decoders: Decoder[Any], optional: int = 0) -> Decoder[T]:
    """A list of these values; the last ``optional`` ones may be left out."""
    most, least = len(decoders), len(decoders) - optional
    names = getattr(into, "_fields", None) or [str(position) for position in range(most)]

    def decode(value: object) -> T:
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise Malformed(f"{_short(value)} is not a list of {most} values")
        values, position = [], 0
        try:
            for position, item in enumerate(value):
                values.append(decoders[position](item))
        except Malformed as error:
            raise error.at(names[position]) from None
        return into(*values)

    return decode


def list_of(decoder: Decoder[T], most: int = MAX_ITEMS) -> Decoder[tuple[T, ...]]:
    def decode(value: object) -> tuple[T, ...]:
        if not isinstance(value, list) or len(value) > most:
            raise Malformed(f"{_short(value)} is not a list of up to {most}")
        return tuple([decoder(item) for item in value])

    return decode


def map_of(decoder: Decoder[T], key: Decoder[S]) -> Decoder[dict[S, T]]:
    """An object whose names are values too."""

    def decode(value: object) -> dict[S, T]:
        out, name = {}, ""
        try:
            for name, item in plain(value).items():
                out[key(name)] = decoder(item)
        except Malformed as error:
            raise error.at(name) from None
        return out

    return decode


def plain(value: object) -> dict[str, Any]:
    """An object as it is, whatever its fields."""
    if not isinstance(value, dict):
        raise Malformed(f"{_short(value)} is not an object")
    return value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
