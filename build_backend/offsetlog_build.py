"""setuptools, but for three things.

1. A development install finds both packages. They lie in two folders, ``offsetlog`` at the top and
   ``pyspark_offsetlog`` in ``spark_plugin``. For that setuptools installs a finder on the meta
   path, which Spark does not see: it looks for ``pyspark_*`` in the folders on ``sys.path``
   (``pkgutil.iter_modules``). So an editable wheel from here holds a plain ``.pth`` file with both
   folders in its place.
2. Builds are reproducible: a wheel or an sdist of the same files is the same bytes, wherever, by
   whom and whenever it is built (with the same setuptools and zlib). Files are sorted, their modes
   are 644 or 755, and their time is ``SOURCE_DATE_EPOCH``, or 2020-02-02.
3. A wheel holds the Java sources below ``pyspark_offsetlog/java``, of which ``offsetlog jar``
   builds the jar for a Spark that the release has none for.
"""

import base64
import gzip
import hashlib
import io
import os
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 - all other hooks are its own

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (ROOT, ROOT / "spark_plugin")
JAVA = ROOT / "spark_plugin" / "java"
EPOCH = "1580601600"


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory() as folder:
        name = build_meta.build_editable(folder, config_settings, metadata_directory)
        files = {
            path: data for path, data in _unzipped(Path(folder, name)) if ".dist-info/" in path
        }
    record = next(path for path in files if path.endswith(".dist-info/RECORD"))
    files["__editable__.offsetlog.pth"] = "".join(f"{path}\n" for path in FOLDERS).encode()
    files[record] = _record({path: data for path, data in files.items() if path != record}, record)
    _write_zip(Path(wheel_directory, name), files)
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory() as folder:
        name = build_meta.build_wheel(folder, config_settings, metadata_directory)
        files = dict(_unzipped(Path(folder, name)))
    record = next(path for path in files if path.endswith(".dist-info/RECORD"))
    del files[record]
    for source in JAVA.rglob("*.java"):
        files[f"pyspark_offsetlog/java/{source.relative_to(JAVA).as_posix()}"] = source.read_bytes()
    files[record] = _record(dict(sorted(files.items())), record)
    _write_zip(Path(wheel_directory, name), files)
    return name


def build_sdist(sdist_directory, config_settings=None):
    with tempfile.TemporaryDirectory() as folder:
        name = build_meta.build_sdist(folder, config_settings)
        with tarfile.open(Path(folder, name)) as sdist:
            files = {
                info.name: (sdist.extractfile(info).read(), info.mode)
                for info in sdist
                if info.isfile()
            }
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.PAX_FORMAT) as sdist:
        for path, (data, mode) in sorted(files.items()):
            info = tarfile.TarInfo(path)
            info.size, info.mtime, info.mode = len(data), _epoch(), _mode(mode)
            sdist.addfile(info, io.BytesIO(data))
    Path(sdist_directory, name).write_bytes(gzip.compress(tar.getvalue(), mtime=_epoch()))
    return name


def _epoch():
    return int(os.environ.get("SOURCE_DATE_EPOCH", EPOCH))


def _mode(mode):
    return 0o755 if mode & 0o100 else 0o644


def _unzipped(wheel):
    with zipfile.ZipFile(wheel) as files:
        for info in files.infolist():
            if not info.is_dir():
                yield info.filename, files.read(info)


def _write_zip(path, files):
    """No file of a wheel is a program, so all have one mode; the metadata comes last."""
    date = max(time.gmtime(_epoch())[:6], (1980, 1, 1, 0, 0, 0))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name in sorted(files, key=lambda name: (".dist-info/" in name, name)):
            info = zipfile.ZipInfo(name, date)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o100644 << 16
            info.create_system = 3
            wheel.writestr(info, files[name])


def _record(files, record):
    lines = []
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(data)}\n")
    return ("".join(lines) + f"{record},,\n").encode()
