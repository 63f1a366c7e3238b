#!/usr/bin/env bash
# Writes the code generated from proto/tidelog/v1/*.proto below the folder given.
#
#   tools/generate_proto.sh proto      beside the sources, as committed
#
# The generator is the oldest supported one: what it writes imports on every newer runtime.
set -euo pipefail
cd "$(dirname "$0")/.."
target="${1:?usage: tools/generate_proto.sh FOLDER}"
mkdir -p "$target"
PATH="$PWD/.venv-proto/bin:$PATH" .venv-proto/bin/python -W ignore -m grpc_tools.protoc -Iproto \
    "--python_out=$target" "--grpc_python_out=$target" \
    "--mypy_out=quiet:$target" "--mypy_grpc_out=quiet:$target" \
    proto/tidelog/v1/*.proto
