"""The documentation as a site: ``make docs`` builds it, and serves it.

The checkout itself is Sphinx's source folder and its README the first page, so that a link means
the same on the site as in the checkout. A link to a file that is no page is a download.

1. Nothing is fetched while a page is read: no font, script or picture from elsewhere.
2. Notebooks are shown as they were saved; their tests run them.
"""

import shutil
from pathlib import Path

import offsetlog

project = "offsetlog"
author = "the offsetlog project"
version = release = offsetlog.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]

# --- which files are pages ---------------------------------------------------------------------

root_doc = "README"
include_patterns = [
    "*.md",
    "docs/*.md",
    "bench/README.md",
    "tests/README.md",
    "notebooks/*.ipynb",
    "offsetlog/format/SPEC.md",
]
exclude_patterns = [".*", "build", "dist", "*.egg-info"]

CHAPTERS = {
    "Use it": [
        "notebooks/first_steps",
        "docs/spark",
        "docs/tables",
        "docs/where_it_runs",
        "docs/groups",
        "docs/page",
        "docs/replay",
        "docs/testing",
        "docs/operations",
        "docs/metrics",
        "docs/logging",
        "docs/api",
    ],
    "From Kafka": [
        "docs/moving_from_kafka",
        "In a notebook <notebooks/moving_a_query_from_kafka>",
    ],
    "Notebooks": [
        "notebooks/a_topic_as_a_table",
        "notebooks/replay_by_resetting_group_offsets",
        "notebooks/lag_in_pictures",
    ],
    "How fast": ["docs/figures", "bench/README"],
    "How it is made": [
        "docs/architecture",
        "offsetlog/format/SPEC",
        "SECURITY",
        "tests/README",
        "CONTRIBUTING",
        "docs/releasing",
        "docs/trust",
        "docs/versions",
        "CHANGELOG",
    ],
}
"""The order of the pages. A page that is in none of them is a warning, which is an error."""

# --- how they are read -------------------------------------------------------------------------

myst_heading_anchors = 4
myst_enable_extensions = ["smartquotes"]
nb_execution_mode = "off"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_display_short_literal_types = True

# --- how they look -----------------------------------------------------------------------------

html_theme = "furo"
html_title = f"offsetlog {version}"
pygments_style, pygments_dark_style = "tango", "monokai"
html_static_path = ["_static"]
html_css_files = ["offsetlog.css"]
html_use_index = False
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False


def _add_chapters(app, docname, source):
    if docname == root_doc:
        for title, pages in CHAPTERS.items():
            lines = "\n".join(pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{lines}\n```\n"


def _add_index(app, exception):
    """The address of a site is its ``index.html``."""
    if exception is None and app.builder.name == "html":
        shutil.copy(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))


def setup(app):
    app.connect("source-read", _add_chapters)
    app.connect("build-finished", _add_index)
