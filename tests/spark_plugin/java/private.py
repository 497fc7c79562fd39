"""Classes of our jar that are not public, called from a test."""

from __future__ import annotations

from typing import Any


def objects(spark: Any, *values: Any) -> Any:
    """An ``Object[]``; whole numbers are ``long``."""
    jvm = spark._jvm
    out = spark.sparkContext._gateway.new_array(jvm.Object, len(values))
    for i, value in enumerate(values):
        whole = isinstance(value, int) and not isinstance(value, bool)
        out[i] = jvm.Long.valueOf(value) if whole else value
    return out


class Private:
    """A class, by its full name."""

    def __init__(self, spark: Any, name: str) -> None:
        jvm = spark._jvm
        loader = jvm.Thread.currentThread().getContextClassLoader()
        found = jvm.java.lang.Class.forName(name, True, loader)
        self._spark = spark
        self._methods = {method.getName(): method for method in found.getDeclaredMethods()}
        self._fields = {field.getName(): field for field in found.getDeclaredFields()}

    def call(self, method: str, of: Any, *arguments: Any) -> Any:
        """``of``: the object whose method it is; None for a static one."""
        found = self._methods[method]
        found.setAccessible(True)
        return found.invoke(of, objects(self._spark, *arguments))

    def constant(self, name: str) -> Any:
        field = self._fields[name]
        field.setAccessible(True)
        return field.get(None)
