#!/usr/bin/env bash
# Install DIGITS from this checkout into a Debian or Ubuntu system, as root: a machine, an image or a container.
# The program goes to /opt/digits, and the user “digits”, whose home is /var/lib/digits, is created to run it.
# DIGITS_GPU=yes or DIGITS_GPU=no chooses TensorFlow with or without the CUDA libraries; by default, the driver of the
# machine decides. Run it again to update.

set -euo pipefail
ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=tools/prepare.sh
. "$ROOT/tools/prepare.sh"

VENV=/opt/digits
PYTHON=$VENV/bin/python
INSTALL_LOG=$VENV/install.log

export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install --yes --no-install-recommends ca-certificates python3 python3-venv
rm -rf /var/lib/apt/lists/*

prepare_venv
export PIP_NO_CACHE_DIR=1 UV_NO_CACHE=1
install_packages serve
rm -rf "$ROOT/node_modules" "$ROOT/build"
ln -sf "$VENV/bin/digits" /usr/local/bin/digits

id digits >/dev/null 2>&1 || useradd --system --create-home --home-dir /var/lib/digits --shell /usr/sbin/nologin digits
# Other users may not see the jobs.
chmod 0700 /var/lib/digits
if [ -d /run/systemd/system ]; then
    install -m 0644 "$ROOT/deploy/digits.service" /etc/systemd/system/digits.service
    systemctl daemon-reload
fi
