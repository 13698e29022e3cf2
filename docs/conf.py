"""Sphinx: furo theme, myst markdown, docstrings of the public names."""

from upriver import __version__

project = "Upriver"
author = "The Upriver developers"
copyright = "2026, the Upriver developers"
release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.viewcode",
]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_format = "short"
html_theme = "furo"
html_title = f"Upriver {release}"
exclude_patterns = ["_build"]
doctest_global_setup = "import numpy as np\nimport upriver as up"
