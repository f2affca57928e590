"""Sphinx's settings. Nothing is fetched when a page is viewed: theme, scripts and fonts are the site's own files."""

import importlib.metadata
from typing import Any

from tb.site.docstrings import as_restructured_text, signature_of

project = "T3-RTL"
version = release = importlib.metadata.version("t3-rtl")
author = "the T3-RTL contributors"
project_copyright = f"{author}; licence Apache-2.0"
# A block without a language is no program: drawings, output.
highlight_language = "none"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"T3-RTL {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
# Single backquotes of the docstrings are code.
default_role = "literal"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]
nitpicky = False
templates_path: list[str] = []


def setup(app: Any) -> None:
    """Docstrings pass :mod:`tb.site.docstrings`."""
    app.connect("autodoc-process-docstring", as_restructured_text)
    app.connect("autodoc-process-signature", signature_of)
