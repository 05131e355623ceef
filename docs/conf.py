"""Configuration of the documentation site: ``python -m sphinx docs static/docs``."""

from pathlib import Path

project = "DIGITS"
html_title = "DIGITS documentation"
html_short_title = "Documentation"
root_doc = "index"
extensions = ["myst_parser"]
myst_heading_anchors = 4
# Examples contain placeholders such as `<name>` in languages with a strict grammar.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_logo = html_favicon = "../static/img/logo.svg"
html_show_sphinx = html_show_copyright = html_copy_source = False
# The colors of the program's pages, see static/css/tokens.css.
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0a7350",
        "color-brand-content": "#0a6b4b",
        "color-brand-visited": "#0a6b4b",
        "color-background-secondary": "#f5f7f6",
    },
    "dark_css_variables": {
        "color-brand-primary": "#3ed39b",
        "color-brand-content": "#5fdcad",
        "color-brand-visited": "#5fdcad",
    },
}
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "back.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
templates_path = ["templates"]


# Attributes for screen readers and the keyboard that the theme omits.
ACCESSIBLE = {
    'role="heading"': 'role="heading" aria-level="2"',
    '<aside class="sidebar-drawer"': '<aside aria-label="All pages" class="sidebar-drawer"',
    '<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
    '<div id="search-results">': '<h1>Search</h1><div id="search-results">',
    "<pre>": '<pre tabindex="0">',
}


def make_accessible(app, exception):
    for path in Path(app.outdir).glob("*.html"):
        text = path.read_text()
        for found, better in ACCESSIBLE.items():
            text = text.replace(found, better)
        path.write_text(text)


def setup(app):
    app.connect("build-finished", make_accessible)
