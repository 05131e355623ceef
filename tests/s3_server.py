"""A server like Amazon S3, run by tests as a separate program: it prints its port and exits with standard input."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BUCKET = "my-images"


@contextlib.contextmanager
def running(page: int = 10) -> Iterator[str]:
    """Start the server; yield its endpoint. It lists objects in pages of ``page``."""
    process = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "MOTO_S3_DEFAULT_MAX_KEYS": str(page)},
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.stdin.close()
        process.wait(timeout=20)
        process.stdout.close()


def upload(endpoint: str, folder: Path, prefix: str, **more: bytes) -> None:
    """Upload a folder and ``more`` objects, by key, to the bucket, which is created if needed."""
    client = _client(endpoint)
    with contextlib.suppress(client.exceptions.BucketAlreadyOwnedByYou):
        client.create_bucket(Bucket=BUCKET)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            client.put_object(
                Bucket=BUCKET, Key=f"{prefix}/{path.relative_to(folder)}", Body=path.read_bytes()
            )
    for key, body in more.items():
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/{key}", Body=body)
    client.close()


def _client(endpoint: str) -> Any:
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id="uploader",
        aws_secret_access_key="uploader",
        region_name="us-east-1",
    )


def main() -> None:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    sys.stdout.write(f"{server.get_host_and_port()[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
