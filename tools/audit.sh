#!/usr/bin/env bash
# Looks up every package of a release in the advisory databases: Python packages with pip-audit, those of the pages with
# npm audit. Fails if one has a known vulnerability, and if a database cannot be asked. pip-audit is installed into a
# temporary environment; PYTHON names the interpreter (python3).

set -uo pipefail
ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P) || exit 1
FOLDER=$(mktemp -d) || exit 1
trap 'rm -rf "$FOLDER"' EXIT
failed=0

"${PYTHON:-python3}" -m venv "$FOLDER/venv" && "$FOLDER/venv/bin/python" -m pip install --quiet pip-audit || exit 1
for file in "$ROOT"/requirements/*.txt; do
    echo "== pip-audit: requirements/${file##*/}"
    # --strict: a package that cannot be looked up is a failure, not a note.
    "$FOLDER/venv/bin/pip-audit" --strict --disable-pip --require-hashes --progress-spinner off -r "$file" || failed=1
done

echo "== npm audit"
cp "$ROOT/package.json" "$ROOT/package-lock.json" "$ROOT/.npmrc" "$FOLDER" || exit 1
(cd -- "$FOLDER" && npm audit) || failed=1

[ "$failed" -eq 0 ] || echo "audit: a package is vulnerable, or a database could not be asked; see above." >&2
exit "$failed"
