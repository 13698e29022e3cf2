"""Sphinx: furo theme, myst markdown, docstrings of the public names."""

import re

from upriver import __version__

project = "Upriver"
author = "The Upriver developers"
copyright = "2026, the Upriver developers"
release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signature has them, and the fields say the rest
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
html_theme = "furo"
html_title = f"Upriver {release}"
html_show_sphinx = False
exclude_patterns = ["_build", "results"]
suppress_warnings = ["toc.empty_glob"]  # pages that only some versions have

CODE = re.compile(r"`([^`]+)`")


def as_written(line: str) -> str:
    """A line of a docstring for reStructuredText: `code` is code, the rest is as it stands.

    Docstrings are plain text with formulas, whose * and | and _ mean what they mean in formulas.
    """
    parts = CODE.split(line)
    for i, part in enumerate(parts):
        parts[i] = f"``{part}``" if i % 2 else re.sub(r"([*|\\`]|_(?=\W|$))", r"\\\1", part)
    return "".join(parts)


def plain(app, what, name, obj, options, lines):
    lines[:] = [as_written(line) for line in lines]


def setup(app):
    app.connect("autodoc-process-docstring", plain)
