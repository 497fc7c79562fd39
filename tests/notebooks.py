"""Running the notebooks: ``python -m tests.notebooks`` runs them anew and saves what they show.

What is saved is what a run showed, without what says more about the machine than about the
notebook: lines on stderr (Spark's greetings among them), and the names of user and host.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from tests.pages import ROOT

FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SECONDS = 600


def execute(path: Path) -> Any:
    """The notebook after a run in a kernel of its own; an error of a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="notebook-") as place:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TMPDIR": place,
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        }
        client = NotebookClient(notebook, timeout=SECONDS, kernel_name="python3")
        client.execute(cwd=place, env=environment)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [_clean(out) for out in _merged(cell.outputs)]
            cell.metadata.pop("execution", None)
    # What jupyter adds says which Python it was.
    notebook.metadata = {
        "kernelspec": notebook.metadata["kernelspec"],
        "language_info": {"name": "python"},
    }
    return notebook


def _merged(outputs: list[Any]) -> list[Any]:
    """Without stderr, and with pieces of stdout put together."""
    kept: list[Any] = []
    for out in outputs:
        if out.output_type == "stream" and out.name == "stderr":
            continue
        if kept and out.output_type == "stream" and kept[-1].output_type == "stream":
            kept[-1].text += out.text
        else:
            kept.append(out)
    return kept


def _clean(out: Any) -> Any:
    for place in [out, out.get("data", {})]:
        for name in ("text", "text/plain", "text/html"):
            if name in place:
                place[name] = _without_names(place[name])
    return out


def _without_names(text: str) -> str:
    here = re.escape(f"{getpass.getuser()}@{socket.gethostname()}")
    text = re.sub(rf"{here}-\d+-[0-9a-f]+", "ann@laptop-4711-1f0c93d2", text)
    return text.replace(f"host='{socket.gethostname()}'", "host='laptop'")


def texts(cell: Any) -> str:
    """What a code cell shows as text."""
    return "".join(
        out.text if out.output_type == "stream" else out.get("data", {}).get("text/plain", "")
        for out in cell.outputs
    )


def pictures(cell: Any) -> list[str]:
    data = [out.get("data", {}) for out in cell.outputs]
    return [one["image/png"] for one in data if "image/png" in one]


if __name__ == "__main__":
    for chosen in [Path(name) for name in sys.argv[1:]] or NOTEBOOKS:
        nbformat.write(execute(chosen), chosen)
        print(f"saved {chosen.name}")
