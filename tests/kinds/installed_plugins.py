"""Create packages in a folder as pip would install them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from digits.kinds.kind import MODULES, TEMPLATES

# Minimal DIGITS 6 plugins, with the parts that identify them.
OLD_DATA_PLUGIN = """
    from digits.utils import subclass, override
    from digits.extensions.data.interface import DataIngestionInterface

    @subclass
    class DataIngestion(DataIngestionInterface):
        def encode_entry(self, entry):
            return None, None
"""
OLD_DATA_PLUGIN_WITHOUT_BASE = """
    class DataIngestion(object):
        @staticmethod
        def get_id():
            return "text"

        def itemize_entries(self, stage):
            return []
"""
OLD_VIEW_PLUGIN = """
    from digits.extensions.view.interface import VisualizationInterface

    class Visualization(VisualizationInterface):
        @staticmethod
        def get_view_template(data):
            return "", {}
"""


def install(
    folder: Path, name: str, code: str, group: str = "digits.plugins.data", target: str = "KIND"
) -> Path:
    """Install the package ``name`` with ``code`` in its ``__init__.py``, and an entry point to its ``target``.

    Return the folder of the package.
    """
    package = folder / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(dedent(code))
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\nclass = {name}:{target}\n")
    return package


def install_kind(folder: Path, package: str, name: str, route: str) -> Path:
    """Install a kind whose modules and templates are empty."""
    code = f"""
        from digits.kinds import Kind
        KIND = Kind({name!r}, "A kind", {route!r}, {package!r})
    """
    place = install(folder, package, code)
    for module in MODULES:
        path = place / f"{module.replace('.', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (place / "templates").mkdir()
    for template in TEMPLATES:
        (place / "templates" / template).touch()
    return place


def install_view(folder: Path, package: str, kinds: tuple[str, ...], template: str) -> Path:
    """Install a prediction view named ``shouting``."""
    code = f"""
        from digits.kinds import PredictionView
        VIEW = PredictionView("shouting", "In capitals", {package!r}, {kinds!r})
    """
    place = install(folder, package, code, "digits.plugins.view", "VIEW")
    (place / "templates").mkdir()
    (place / "templates" / "predictions.html").write_text(template)
    return place
