"""Print the documentation page of the REST interface: ``.venv/bin/python -m tools.rest_page > docs/rest.md``."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from digits.core.settings import Settings
from digits.web.app import create_app
from digits.web.openapi.document import document
from digits.web.openapi.page import rest_page


def main() -> None:
    with TemporaryDirectory() as folder:
        settings = Settings(jobs_dir=Path(folder, "jobs"), state_dir=Path(folder, "state"), data_roots=())
        app = create_app(settings, start=False)
        with app.test_request_context():
            sys.stdout.write(rest_page(document(app)))


if __name__ == "__main__":
    main()
