#!/bin/sh
# Generates Go code from the .proto files into v1/ and builds ./numbers. Needs go (1.23 or newer) and
# protoc; PROTOC names another one, such as "python -m grpc_tools.protoc" (pip install grpcio-tools).
set -eu
cd "$(dirname "$0")"
proto=../../../proto
export GOBIN="$PWD/.bin"
go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.10
go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1
files=$(cd "$proto" && ls tidelog/v1/*.proto)
options=""
for file in $files; do
    options="$options --go_opt=M$file=example.com/tidelog/v1 --go-grpc_opt=M$file=example.com/tidelog/v1"
done
PATH="$GOBIN:$PATH" ${PROTOC:-protoc} -I"$proto" $options \
    --go_out=. --go_opt=module=example.com/tidelog \
    --go-grpc_out=. --go-grpc_opt=module=example.com/tidelog $files
go build -o numbers .
