"""Builds the jars of a checkout: what ``offsetlog.spark_jar`` builds, into the package's folder.

The Spark is the installed PySpark, or with ``--jars FOLDER`` the one whose jars lie there; its line
is what those jars say.

``python spark_plugin/java/build.py`` prints the jar's path, or why there is none; with ``--needed``
that is an error, as for a release.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from offsetlog.spark_jar import NotBuilt, build_into  # noqa: E402 - of this checkout

JARS = HERE.parent / "pyspark_offsetlog" / "jars"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--needed", action="store_true", help="without a jar it is an error")
    parser.add_argument("--jars", type=Path, help="the folder of a Spark's jars")
    arguments = parser.parse_args()
    try:
        print(build_into(JARS, HERE, arguments.jars))
    except NotBuilt as why:
        if arguments.needed or "could not be compiled" in str(why):
            raise SystemExit(f"There is no jar for Spark's JVM: {why}.") from None
        print(f"The jar for Spark's JVM is not built: {why}. Everything works without it.")


if __name__ == "__main__":
    main()
