"""Sphinx configuration of the book."""

import warnings

# What Sphinx tells the authors of these extensions about its version after next.
for module in ("myst_parser", "sphinx_book_theme", "sphinx_proof"):
    warnings.filterwarnings("ignore", category=PendingDeprecationWarning, module=rf"{module}\.")

project = "EOFD-MLogB, an executable companion"
author = "the companion's authors"
extensions = [
    "myst_nb",
    "sphinx_proof",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "compendium.book.extension",
]
root_doc = "index"
exclude_patterns = ["_build", "conf.py"]
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 4
myst_dmath_double_inline = True
suppress_warnings = ["mystnb.unknown_mime_type"]
autodoc_typehints = "none"
numpydoc_show_class_members = False
viewcode_line_numbers = True  # which the page of the algorithm links to
mathjax_path = "tex-svg-full.js"
mathjax3_config = {"loader": {"load": []}}
prf_realtyp_to_countertyp = dict.fromkeys(("lemma", "corollary", "proposition"), "theorem")  # one counter
html_theme = "sphinx_book_theme"
html_title = "EOFD-MLogB, an executable companion"
html_context = {"default_mode": "auto"}
# Summaries are fetched, which a browser refuses for pages that are files.
html_show_search_summary = False
html_domain_indices = False  # the indices of modules and statements repeat the pages
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("claims.js", {"defer": "defer"}), ("formulas.js", {"defer": "defer"})]
html_theme_options = {
    "use_download_button": False,
    "use_fullscreen_button": False,
    "show_toc_level": 2,
    "home_page_in_toc": True,
    "navbar_persistent": [],  # the side bar has the search
    "secondary_sidebar_items": {"**": ["page-toc"], "claims": [], "notation": [], "algorithm": []},
}
