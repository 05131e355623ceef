#!/usr/bin/env bash
# Generate *_pb2.py and .pyi in digits/data/ from the .proto files beside them, in a temporary environment.
# The compiler is that of protobuf 6.31, the oldest runtime that TensorFlow 2.21 accepts: newer runtimes accept its
# output, older ones reject that of newer compilers.

set -euo pipefail
ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
ENVIRONMENT=$(mktemp -d)
trap 'rm -rf "$ENVIRONMENT"' EXIT
"${PYTHON:-python3}" -m venv "$ENVIRONMENT"
"$ENVIRONMENT/bin/pip" install --quiet grpcio-tools==1.75.1 "setuptools<80"
cd -- "$ROOT"
"$ENVIRONMENT/bin/python" -m grpc_tools.protoc --proto_path=. --python_out=. --pyi_out=. digits/data/*/*.proto
