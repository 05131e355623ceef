# shellcheck shell=bash
# Set up a checkout: .venv with all Python packages, static/vendor with the scripts of the pages.
# Sourced by digits-devserver and digits-test, which set ROOT to the checkout. If nothing has changed since the
# last time, this takes a few milliseconds and starts neither python nor pip.

VENV="$ROOT/.venv"
PYTHON="$VENV/bin/python"
INSTALL_LOG="$VENV/install.log"

say() { printf 'digits: %s\n' "$*" >&2; }

fail() {
    printf 'digits: %s\n' "$@" >&2
    exit 1
}

# prepare serve|test: install the packages of the server, or also those of the tests.
prepare() {
    local purpose=$1 stamp="$VENV/.ready-$1" digest
    digest=$(ingredients_digest) || fail "The command sha256sum is missing (package coreutils)."
    if [ -x "$PYTHON" ] && [ -f "$ROOT/static/vendor/.stamp" ] && [ -f "$stamp" ] && [ "$(<"$stamp")" = "$digest" ]; then
        prepare_documentation "$purpose"
        return
    fi
    say "Setting up in $ROOT (once; a few minutes with an empty package cache)."
    prepare_venv
    install_packages "$purpose" --editable
    printf '%s' "$digest" >"$VENV/.ready-serve"
    [ "$purpose" = serve ] || printf '%s' "$digest" >"$stamp"
    prepare_documentation "$purpose"
    say "Ready."
}

# Build the documentation site if a page has changed; for a server in the background, because it starts without it.
prepare_documentation() {
    local stamp="$VENV/.ready-docs"
    [ -f "$stamp" ] && [ -z "$(find "$ROOT/docs" -newer "$stamp" -print -quit 2>/dev/null)" ] && return
    if [ "$1" = serve ]; then
        (build_documentation >>"$INSTALL_LOG" 2>&1 &)
    else
        build_documentation
    fi
}

build_documentation() {
    nice "$PYTHON" -m sphinx --quiet --fresh-env --write-all "$ROOT/docs" "$ROOT/static/docs" && : >"$VENV/.ready-docs"
}

# Print a hash of everything that determines the installed packages, including the path: a venv cannot be moved.
ingredients_digest() {
    local sum=sha256sum
    command -v sha256sum >/dev/null || sum="shasum -a 256"
    {
        printf '%s\n' "$ROOT" "$(has_nvidia_driver && echo gpu)"
        cat "$ROOT"/{setup.py,pyproject.toml,package.json,package-lock.json,tools/frontend.py,tools/prepare.sh} "$ROOT"/requirements/* \
            "$ROOT"/static/src/*
    } | $sum
}

# DIGITS_GPU=yes installs the CUDA libraries on a machine without a driver, as for an image; DIGITS_GPU=no, never.
has_nvidia_driver() {
    [ -z "${DIGITS_GPU-}" ] || { [ "$DIGITS_GPU" = yes ]; return; }
    [ -e /proc/driver/nvidia/version ] || [ -e /dev/nvidia0 ] || command -v nvidia-smi >/dev/null
}

prepare_venv() {
    if [ -x "$PYTHON" ] && is_fitting "$PYTHON" && "$PYTHON" -m pip --version >/dev/null 2>&1; then
        return
    fi
    local python
    python=$(fitting_python) || exit 1
    say "Creating .venv with $("$python" --version)."
    "$python" -m venv --clear "$VENV" || fail "Creating .venv failed; see the error above."
}

# Print the first Python 3.11 to 3.13 that can create a venv. DIGITS_PYTHON selects another one.
fitting_python() {
    local candidate without_venv=""
    for candidate in ${DIGITS_PYTHON:-python3.12 python3.11 python3.13 python3}; do
        is_fitting "$candidate" || continue
        if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            printf '%s' "$candidate"
            return
        fi
        without_venv=$candidate
    done
    if [ -n "$without_venv" ]; then
        local package
        package=$("$without_venv" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        fail "$without_venv cannot create virtual environments: its venv module is a separate package." \
            "Install it (on Debian and Ubuntu: sudo apt-get install $package) and run this again."
    fi
    fail "No Python 3.11, 3.12 or 3.13 was found on PATH; TensorFlow has packages for these." \
        "Install one (on Debian and Ubuntu: sudo apt-get install python3 python3-venv), or select one:" \
        "  DIGITS_PYTHON=/path/to/python3.12 $0"
}

# Run the candidate: version managers put commands on PATH that only print an error.
is_fitting() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

# install_packages serve|test [--editable]: install the packages, with the hashes in requirements/*.txt, then the checkout
# without dependencies.
install_packages() {
    local locks=(--requirement "$ROOT/requirements/serve.txt" --requirement "$ROOT/requirements/docs.txt")
    if has_nvidia_driver; then
        say "Found an NVIDIA driver: installing TensorFlow with the CUDA libraries (about 3 GB)."
        locks+=(--requirement "$ROOT/requirements/gpu.txt")
    fi
    [ "$1" = test ] && locks+=(--requirement "$ROOT/requirements/test.txt")
    has_node || locks+=(--requirement "$ROOT/requirements/node.txt")
    say "Installing packages; the output of uv and pip is in $INSTALL_LOG."
    : >"$INSTALL_LOG"
    # While packages are downloaded: bundle the scripts of the pages, which is repeated below if it fails, and compile.
    { "$PYTHON" "$ROOT/tools/frontend.py"; "$PYTHON" -m compileall -q "$ROOT/digits"; } >>"$INSTALL_LOG" 2>&1 &
    # Build nothing from source: build dependencies would be installed without hashes.
    local verified=(--require-hashes --only-binary :all:)
    # uv takes a sixth of pip's CPU time. pip remains for platforms without uv, and indexes that only pip can use.
    { pip "${verified[@]}" --requirement "$ROOT/requirements/uv.txt" && uv "${verified[@]}" "${locks[@]}"; } ||
        pip_or_fail "${verified[@]}" "${locks[@]}"
    wait
    pip_or_fail --no-deps --no-build-isolation "${@:2}" "$ROOT"
}

pip() { logged "$PYTHON" -m pip install --disable-pip-version-check "$@"; }

# uv does not read the configuration of pip.
uv() {
    local index=${PIP_INDEX_URL:-$("$PYTHON" -m pip config get global.index-url 2>/dev/null)}
    [ -z "$index" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
    logged "$VENV/bin/uv" pip install --system-certs --python "$PYTHON" "$@"
}

logged() {
    "$@" 2>&1 | tee -a "$INSTALL_LOG" | show_downloads
    return "${PIPESTATUS[0]}"
}

pip_or_fail() {
    if ! pip "$@"; then
        grep -v '^WARNING' "$INSTALL_LOG" | tail -n 25 >&2
        fail "Installing the packages failed; the end of $INSTALL_LOG is above." \
            "For connection errors, check the network or the proxy (HTTPS_PROXY) and run this again; downloaded" \
            "packages are cached. For hash errors, the package index does not have the files that this release was" \
            "tested with. For errors of node or npm, install node 18 or newer."
    fi
}

# Node.js bundles the scripts of the pages; a Python package provides it if it is not installed.
has_node() {
    command -v npm >/dev/null && node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)' 2>/dev/null
}

# Show progress: large downloads, and the start of the installation.
show_downloads() {
    local line
    while IFS= read -r line; do
        case $line in
            *Downloading*' MB)'* | *Downloading*iB')'*) say "  ${line#"${line%%[! ]*}"}" ;;
            'Installing collected packages'*) say "  Unpacking." ;;
        esac
    done
}
