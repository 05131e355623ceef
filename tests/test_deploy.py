"""The files in deploy/: an installation into a fresh Debian system, and the service that runs it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
SUITE = "bookworm"
INSTALL_SECONDS = 1800
# Run in namespaces of its own, so that mounts and processes end with it: the folder of the new system, and folders of
# this one that its pip reads.
ENTER = """
root=$1; shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
for folder in "$@"; do mkdir -p "$root$folder"; mount --bind "$folder" "$root$folder"; done
exec chroot "$root" bash -euo pipefail /inside.sh
"""
INSIDE = """
DIGITS_GPU=no /source/deploy/install.sh
rm -rf /source  # the installation is complete without it
cd /
runuser -u digits -- /opt/digits/bin/python -c 'import tensorflow; print("TensorFlow", tensorflow.__version__)'
runuser -u digits -- digits serve --port 0 --no-standby >/tmp/output 2>&1 &
for try in $(seq 600); do grep -q '^ *address' /tmp/output && break; sleep 0.1; done
cat /tmp/output
address=$(grep -o 'http://[0-9.:]*' /tmp/output | head -n 1)
/opt/digits/bin/python - "$address" <<'END'
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1] + "/health", timeout=60) as answer:
    print("health", answer.status, answer.read().decode())
END
stat -c 'jobs %U %a' /var/lib/digits/.local/share/digits/jobs
kill %1
wait %1 || true
"""


def test_the_image_files_and_the_service_use_the_same_installation() -> None:
    for name in ("Dockerfile", "digits.def"):
        assert "/source/deploy/install.sh" in (DEPLOY / name).read_text()
    folder, user = "/opt/digits", "digits"
    script = (DEPLOY / "install.sh").read_text()
    assert (
        f"VENV={folder}\n" in script
        and f"useradd --system --create-home --home-dir /var/lib/{user}" in script
    )
    service = (DEPLOY / "digits.service").read_text()
    assert f"ExecStart={folder}/bin/digits serve\n" in service and f"User={user}\n" in service
    assert f"USER {user}\n" in (DEPLOY / "Dockerfile").read_text()
    # Nothing names an index of packages: pip uses the configuration of the machine.
    for path in DEPLOY.iterdir():
        assert not re.search(r"index-url|pypi|npmjs", path.read_text()), path


@pytest.mark.integration
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="requires systemd-analyze")
def test_systemd_accepts_the_service(tmp_path: Path) -> None:
    text = (DEPLOY / "digits.service").read_text()
    program = "/opt/digits/bin/digits"
    assert program in text
    unit = tmp_path / "digits.service"
    unit.write_text(text.replace(program, "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.integration
@pytest.mark.nightly
@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("mmdebstrap"), reason="requires root and the package mmdebstrap"
)
def test_a_fresh_debian_runs_the_server_after_the_installation(tmp_path: Path) -> None:
    system = tmp_path / "system"
    command = ["mmdebstrap", "--variant=minbase", "--include=ca-certificates", SUITE, system]
    subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_SECONDS)
    _copy_checkout(system / "source")
    _copy_configuration(system)
    (system / "inside.sh").write_text(INSIDE)
    enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-euc", ENTER, "enter", system]
    done = subprocess.run(
        [*enter, *_folders_of_pip()],
        env=_environment(),
        text=True,
        capture_output=True,
        timeout=INSTALL_SECONDS,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-4000:]
    assert re.search(r"^TensorFlow 2\.\d+", said, re.MULTILINE), said[-4000:]
    assert re.search(r'^health 200 .*"version"', said, re.MULTILINE), said[-4000:]
    assert re.search(r"^jobs digits 700$", said, re.MULTILINE), said[-4000:]


def _copy_checkout(target: Path) -> None:
    """Copy the files of the checkout that git knows."""
    archive = target.parent / "source.tar"
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(archive, "w") as tar:
        for name in names.decode().split("\0")[:-1]:
            if (ROOT / name).exists():
                tar.add(ROOT / name, name)
    target.mkdir()
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="data")
    archive.unlink()


def _copy_configuration(system: Path) -> None:
    """Give the new system the network, the certificates and the package indexes of this one."""
    for name in (
        "etc/resolv.conf",
        "etc/hosts",
        "etc/ssl/certs/ca-certificates.crt",
        "etc/pip.conf",
        "etc/xdg/pip",
    ):
        source, target = Path("/", name), system / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        elif source.exists():
            shutil.copy(source, target)
    home = Path.home()
    for name in (".npmrc", ".config/pip/pip.conf"):
        if (home / name).exists():
            (system / "root" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(home / name, system / "root" / name)


def _environment() -> dict[str, str]:
    wanted = re.compile(r"(PIP|NODE|SSL|npm)_.*|.*_proxy", re.IGNORECASE)
    kept = {name: value for name, value in os.environ.items() if wanted.fullmatch(name)}
    return kept | {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


def _folders_of_pip() -> list[str]:
    """Return the local folders that the configuration of pip names, each with its neighbors."""
    listed = subprocess.run(["pip", "config", "list"], check=True, capture_output=True, text=True).stdout
    paths = {Path(path) for path in re.findall(r"(?<=[ '/])/[^\s']+", listed.replace("file://", " "))}
    return sorted({str(Path(*path.parts[:3])) for path in paths if path.is_dir()})
