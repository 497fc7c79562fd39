"""setuptools, but for one thing: how a development install finds the packages.

They lie in two folders, ``offsetlog`` at the top and ``pyspark_offsetlog`` in ``spark_plugin``.
For that setuptools installs a finder on the meta path, which Spark does not see: it looks for
``pyspark_*`` in the folders on ``sys.path`` (``pkgutil.iter_modules``). So an editable wheel from
here holds a plain ``.pth`` file with both folders in its place. Wheels and sdists are setuptools'.
"""

import base64
import hashlib
import tempfile
import zipfile
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 - all other hooks are its own

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (ROOT, ROOT / "spark_plugin")


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory() as folder:
        name = build_meta.build_editable(folder, config_settings, metadata_directory)
        with zipfile.ZipFile(Path(folder, name)) as wheel:
            files = {
                info.filename: wheel.read(info)
                for info in wheel.infolist()
                if ".dist-info/" in info.filename
            }
    record = next(path for path in files if path.endswith(".dist-info/RECORD"))
    files["__editable__.offsetlog.pth"] = "".join(f"{path}\n" for path in FOLDERS).encode()
    files[record] = _record({path: data for path, data in files.items() if path != record}, record)
    with zipfile.ZipFile(Path(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)
    return name


def _record(files, record):
    lines = []
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(data)}\n")
    return ("".join(lines) + f"{record},,\n").encode()
