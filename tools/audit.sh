#!/usr/bin/env bash
# Check all packages of a release for known vulnerabilities: Python packages with pip-audit, those of the pages with
# npm audit. Fails if a package has one, or if a database cannot be reached. pip-audit is installed into a temporary
# environment; PYTHON selects the interpreter (python3).

set -uo pipefail
ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P) || exit 1
FOLDER=$(mktemp -d) || exit 1
trap 'rm -rf "$FOLDER"' EXIT
failed=0

"${PYTHON:-python3}" -m venv "$FOLDER/venv" && "$FOLDER/venv/bin/python" -m pip install --quiet pip-audit || exit 1
for file in "$ROOT"/requirements/*.txt; do
    echo "== pip-audit: requirements/${file##*/}"
    # --strict: fail if a package cannot be looked up.
    "$FOLDER/venv/bin/pip-audit" --strict --disable-pip --require-hashes --progress-spinner off -r "$file" || failed=1
done

echo "== npm audit"
cp "$ROOT/package.json" "$ROOT/package-lock.json" "$ROOT/.npmrc" "$FOLDER" || exit 1
(cd -- "$FOLDER" && npm audit) || failed=1

[ "$failed" -eq 0 ] || echo "audit: a package is vulnerable, or a database could not be reached; see above." >&2
exit "$failed"
