"""Sphinx configuration: pages in Markdown, a page per public name, examples that are run, no
network.
"""

from __future__ import annotations

import importlib
import re
from importlib.metadata import distribution
from pathlib import Path

from numpydoc.docscrape import NumpyDocString
from typer.main import get_command

import dpconvex
from dpconvex.cli import app as command_line

ROOT = Path(__file__).resolve().parents[1]

project = "dpconvex"
copyright = "the dpconvex developers"
release = version = dpconvex.__version__
language = "en"
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "sphinx_design",
    "sphinx_copybutton",
]
exclude_patterns = [
    "_build",
    "reproduction/runs",
    "gallery/*.md5",
    "gallery/sg_execution_times.rst",
]
templates_path = ["_templates"]
suppress_warnings = ["config.cache"]  # the gallery's options hold a function

# Markdown
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
copybutton_line_continuation_character = "\\"

# Reference
autosummary_generate = True
autosummary_ignore_module_all = False
autosummary_imported_members = True
autosummary_context = {"first": dpconvex.__all__}  # what is in the first room has its page there
autodoc_typehints = "none"  # types are in the docstrings, in words
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# Examples


sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": "plot_",
    "within_subsection_order": "FileNameSortKey",
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 10_000,
    "download_all_examples": False,
    "remove_config_comments": True,
    "write_computation_times": False,
    "reset_modules_order": "before",
}

# Looks
html_theme = "pydata_sphinx_theme"
html_title = "dpconvex"
# One file of MathJax draws formulas, from the site itself: nothing is loaded from elsewhere.
_MATHJAX = distribution("sphinx-mathjax-offline")
html_static_path = [
    "_static",
    str(_MATHJAX.locate_file("sphinx-mathjax-offline/static/mathjax/tex-svg.js")),
]
mathjax_path = "tex-svg.js"
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "show_prev_next": True,
    "navigation_with_keys": False,
    "use_edit_page_button": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "changelog": [], "contributing": []}
html_context = {"default_mode": "auto"}


class PrivacySections:
    """Keeps a docstring's Privacy section, which numpydoc does not know, and shows it as a box."""

    def __init__(self):
        self.kept = {}

    def take(self, app, what, name, obj, options, lines):
        """Take the section out before numpydoc reads the docstring."""
        for start, line in enumerate(lines[:-1]):
            if line.strip() == "Privacy" and set(lines[start + 1].strip()) == {"-"}:
                after = range(start + 2, len(lines))
                rules = (i - 1 for i in after if re.fullmatch(r"\s*-{3,}\s*", lines[i]))
                end = next(rules, len(lines))
                self.kept[name] = lines[start + 2 : end]
                del lines[start:end]
                return

    def give(self, app, what, name, obj, options, lines):
        """Put it back at the end, as a box."""
        if name in self.kept:
            text = ["   " + line for line in self.kept.pop(name)]
            lines += ["", ".. admonition:: Privacy", "", *text, ""]


def skip_foreign(app, what, name, obj, skip, options):
    """Leave out what classes inherit from other libraries."""
    module = getattr(obj, "__module__", None) or getattr(
        getattr(obj, "fget", None), "__module__", None
    )
    return True if module and not module.startswith("dpconvex") else skip


def command_options():
    """Return the options of every command, as their own help states them."""
    parts = []

    def add(words, command):
        for name, inner in getattr(command, "commands", {}).items():
            add(f"{words} {name}", inner)
        if hasattr(command, "commands"):
            return
        parts.append(f"### {words}\n\n{command.help.strip()}\n\n| option | meaning |\n|---|---|")
        for entry in command.params:
            names = ", ".join(f"`{name}`" for name in (*entry.opts, *entry.secondary_opts))
            if entry.param_type_name == "argument":
                names = f"`{entry.name.upper()}`"
            parts[-1] += f"\n| {names} | {(entry.help or '').replace('|', chr(92) + '|')} |"

    add("dpconvex", get_command(command_line))
    return "\n\n".join(parts)


def complete_source(app, docname, source):
    """Add options to the page of commands, and the papers' pages to their index."""
    if docname == "reference/command-line":
        source[0] += "\n" + command_options()
    if docname == "reproduction/index":
        found = re.findall(r"\[(.*?)\]\((\S+)/(\S+)\.md\)", source[0])
        entries = "\n".join(f"{paper}: {name} <{paper}/{page}>" for name, paper, page in found)
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"


def setup(app):
    """Add what Sphinx does not bring."""
    importlib.import_module("dpconvex.estimators")
    NumpyDocString.sections["Privacy"] = []
    privacy = PrivacySections()
    app.connect("autodoc-process-docstring", privacy.take, priority=100)
    app.connect("autodoc-process-docstring", privacy.give, priority=900)
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("source-read", complete_source)
