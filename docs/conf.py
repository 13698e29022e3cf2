"""Sphinx: furo theme, myst markdown, docstrings of the public names."""

import json
import os
import re
from pathlib import Path

from docutils.nodes import SkipNode, Text, entry, literal
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import inspect, logging

from upriver import __version__

# a notebook runs in a folder of its own; one of them imports `studies`, which is not installed
root = str(Path(__file__).parents[1])
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
project = "Upriver"
author = "The Upriver developers"
copyright = "2026, the Upriver developers"
release = __version__
extensions = [
    "myst_nb",  # pages that begin with `file_format: mystnb` are executed
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",  # Parameters, Returns and Raises in NumPy style
    "sphinx.ext.viewcode",
]
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_param = False  # types are words such as "function of the state", not references
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "cache"  # an unchanged page is not executed again
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {"Array": "Array", "ArrayLike": "ArrayLike"}
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
html_theme = "furo"
html_math_renderer = "mathml"  # drawn by the browser: the pages need no network
html_theme_options = {
    "light_css_variables": {"code-font-size": "77%"},
    "dark_css_variables": {"code-font-size": "77%"},
}
html_static_path = ["_static"]
html_css_files = ["upriver.css"]
html_js_files = ["copy.js"]  # a copy button on every block of code
html_title = f"Upriver {release}"
html_show_sphinx = False
exclude_patterns = ["_build", "results/tables"]  # tables are included in pages that have a title

CODE = re.compile(r"`([^`]+)`")


def as_written(line: str) -> str:
    """Return a line of a docstring as reStructuredText.

    Text in single backticks is code. Everything else is plain text with formulas, in which *, |
    and _ have no special meaning and are escaped.
    """
    parts = CODE.split(line)
    for i, part in enumerate(parts):
        parts[i] = f"``{part}``" if i % 2 else re.sub(r"([*|\\`]|_(?=\W|$))", r"\\\1", part)
    return "".join(parts)


def escape_docstring(app, what, name, obj, options, lines):
    lines[:] = [as_written(line) for line in lines]
    escape_docstring.last = list(lines)


def keep_sentence(app, what, name, obj, options, lines):
    """Undo what napoleon makes of an attribute, where what precedes a colon is the type."""
    if what in ("attribute", "property", "data"):
        lines[:] = [*escape_docstring.last, ""]


inspect.TypeAliasForwardRef.__repr__ = lambda self: self.name  # inside the type of a property
SHORTER = (
    (r"~?(?:[\w]+\.)+(?=[A-Z]\w*)", ""),  # a type without its module
    (r"ndarray\[tuple\[Any, \.\.\.\], dtype\[Any\]\]", "Array"),
    (
        r"_Buffer \| _SupportsArray.*?\| complex \| bytes \| str \| _NestedSequence\[[^\]]*\]",
        "ArrayLike",
    ),
    (r"Literal\['(\w+)'\]|<function (\w+)>", r"\1\2"),
    (r" = <factory>", " = ..."),
    (r"(?<=\w): Any(?=[,)=]| = )", ""),  # it says nothing
)


NOT_CONSTRUCTED = {
    "FiniteMDP", "Task", "Run", "LearningRun", "Rollouts", "Plan", "StationaryPlan", "FittedMNL",
    "TransitionModel", "Population", "RewardModel", "Decision", "FactoredRun", "SimulatedValue",
    "RolloutPolicy",
}  # fmt: skip
"""Classes whose objects functions return; the arguments of their constructors are not public."""


def shorten_signature(app, what, name, obj, options, signature, returns):
    """Write the types of a signature as a reader would: without modules, arrays as Array."""
    if what == "class" and obj.__name__ in NOT_CONSTRUCTED:
        return "", None
    texts = []
    for text in (signature, returns):
        for pattern, short in SHORTER if text else ():
            text = re.sub(pattern, short, text)
        texts.append(text)
    return texts[0], None if texts[1] == "Any" else texts[1]


ACCENT = re.compile(r"\\(hat|tilde|bar)\s*(\\[A-Za-z]+|[A-Za-z]|\{[^{}]*\})")
BAR = re.compile(r'<mover accent="true">(?=(?:(?!</mover>).)*ˉ)', re.DOTALL)
"""A letter with a bar: as an accent the bar is drawn inside the letter in some fonts."""
NORM = re.compile(r'<mo((?: class="\w+")?)>‖</mo>')
"""The bars of a norm: without this only the left one grows with what is inside."""
FUNCTION = re.compile(r"\\(log|exp)\s+(?=[\\A-Za-z])")
SHORT_FRACTION = re.compile(r"(\\[td]?frac)\s*(\d)\s*(\d)")
"""\\frac12: docutils reads the digits as one number, the numerator."""
TAG = re.compile(r"\\tag\{([^{}]*)\}")
BIG = re.compile(r"\\([Bb]igg?)\s*(\\[{}|]|[()\[\]|])")


def mathml(tex: str, node) -> str:
    """Return a formula as MathML, made by docutils; unknown TeX commands give a warning."""
    tex = SHORT_FRACTION.sub(r"\1{\2}{\3}", tex)
    tex = ACCENT.sub(r"{\\\1{\2}{}}", tex)  # {}: else an index would go below the letter
    tex = FUNCTION.sub(r"\\\1\\,", tex)  # a thin space before the argument
    tex = BIG.sub(lambda m: rf"\{m[1]}{'r' if m[2][-1] in ')]}' else 'l'}{m[2]}", tex)
    try:
        text = tex2mathml(tex.replace(r"\dots", r"\ldots"), as_block=node.tagname == "math_block")
        text = BAR.sub("<mover>", text).replace("ˉ", "¯")
        text = text.replace("<mo>'</mo>", '<mo class="prime" lspace="0" rspace="0">′</mo>')
        return NORM.sub(r'<mo\1 stretchy="false">‖</mo>', text)
    except MathError as error:
        logging.getLogger(__name__).warning("%s in $%s$", error, tex, location=node)
        return ""


def visit_math(self, node):
    self.body.append(mathml(node.astext(), node))
    raise SkipNode


def visit_math_block(self, node):
    tex, number = node.astext(), ""
    if tag := TAG.search(tex):  # docutils knows no \\tag: the number stands beside the formula
        tex, number = TAG.sub("", tex), f'<span class="equation-number">({tag[1]})</span>'
    self.body.append(f'<div class="math">{mathml(tex, node)}{number}</div>')
    raise SkipNode


ROLE = re.compile(r"\{([\w-]+)\}`(?:([^`<]*?)\s*<([^`>]*)>|([^`]*))`")


def replace_roles(text: str) -> str:
    """Return Markdown without roles, which only the site understands: plain words instead."""

    def plain(match: re.Match) -> str:
        role, title, _, target = match.groups()
        if title:
            return title
        return f"the page *{Path(target).name.replace('-', ' ')}*" if role == "doc" else target

    text = re.sub(r"\s*[^.]*\{nb-download\}`[^`]*`\.?", "", text)  # it has been downloaded
    return ROLE.sub(plain, text)


UNBROKEN = re.compile(r"\[[-+\d., ]+%?\]|[-+\d.,]+ ± [\d.,]+")
SHORT = 15


def keep_together(app, doctree):
    """Let no line of a table end within an interval or within a short piece of code."""
    for cell in doctree.findall(entry):
        for code in cell.findall(literal):
            if len(code.astext()) <= SHORT:
                code["classes"].append("short")
        for text in list(cell.findall(Text)):
            if not isinstance(text.parent, literal) and UNBROKEN.search(text):
                kept = UNBROKEN.sub(lambda m: m[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
                text.parent.replace(text, Text(kept))


def write_plain_notebooks(app, exception):
    """Replace the roles in the notebooks that readers download."""
    for path in Path(app.outdir, "_downloads").glob("*/*.ipynb"):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                text = replace_roles("".join(cell["source"]))
                cell["source"] = text.splitlines(keepends=True)
        path.write_text(json.dumps(notebook, indent=1) + "\n", encoding="utf-8")


def setup(app):
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("autodoc-process-docstring", escape_docstring, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", keep_sentence, priority=600)  # after it
    app.connect("doctree-read", keep_together)
    app.connect("build-finished", write_plain_notebooks)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
