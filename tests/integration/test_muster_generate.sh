#!/usr/bin/env bash
# muster_generate of cmake/muster-generate.cmake: what it makes is below OUT, paths may be relative, and what cannot be made is
# refused at the configuration, with the file and the remedy.
set -euo pipefail
. "$(dirname "$0")/../lib/guard.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }

mkdir -p "$work/project/api/v1" "$work/elsewhere"
cat >"$work/project/api/v1/greeter.proto" <<'P'
syntax = "proto3";
package greet;
message Name { string name = 1; }
service Greeter { rpc Greet(Name) returns (Name); }
P
cp "$work/project/api/v1/greeter.proto" "$work/elsewhere/greeter.proto"
cp "$work/project/api/v1/greeter.proto" "$work/project/greeter.txt"
echo 'syntax = "proto3"; import "missing/away.proto";' >"$work/project/lost.proto"

# configure ARGUMENTS of muster_generate
configure() {
    rm -rf "$work/b"
    cat >"$work/project/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
add_executable(muster::protoc-gen-muster IMPORTED)
set_target_properties(muster::protoc-gen-muster PROPERTIES IMPORTED_LOCATION "$MUSTER_BINARY_DIR/bin/protoc-gen-muster")
include("$MUSTER_SOURCE_DIR/cmake/muster-generate.cmake")
add_library(stubs OBJECT)
target_include_directories(stubs PRIVATE "$MUSTER_SOURCE_DIR/include")
muster_generate(stubs $1)
CMAKE
    cmake -S "$work/project" -B "$work/b" -G Ninja >"$work/said" 2>&1
}

# made FOLDER ARGUMENTS: it builds, and the stub is in FOLDER.
made() {
    configure "$2" || fail "refused: $2: $(cat "$work/said")"
    cmake --build "$work/b" >"$work/said" 2>&1 || fail "does not build: $2: $(cat "$work/said")"
    [ -f "$work/b/$1/greeter.muster.h" ] || fail "$2: no $1/greeter.muster.h, but $(find "$work" -name '*.muster.h')"
}
made api/v1 api/v1/greeter.proto
made . "api/v1/greeter.proto PROTO_PATH api/v1"
made stubs "api/v1/greeter.proto PROTO_PATH api/v1 OUT stubs"
made stubs "$work/elsewhere/greeter.proto PROTO_PATH $work/elsewhere OUT stubs"
# Two targets of one folder share what is made.
made api/v1 "api/v1/greeter.proto)
add_library(twice OBJECT)
target_include_directories(twice PRIVATE $MUSTER_SOURCE_DIR/include)
muster_generate(twice api/v1/greeter.proto"

# refused TEXT ARGUMENTS
refused() {
    if configure "$2"; then fail "accepted: $2"; fi
    tr -s ' \n' ' ' <"$work/said" | grep -qF -- "$1" || fail "$2: expected '$1', got: $(cat "$work/said")"
}
refused "$work/elsewhere/greeter.proto is not below PROTO_PATH ($work/project): name a folder above it" "$work/elsewhere/greeter.proto"
refused "elsewhere/greeter.proto is not below PROTO_PATH" "../elsewhere/greeter.proto"
refused "api/v1/greeter.proto is not below PROTO_PATH ($work/project/api/v1x)" "api/v1/greeter.proto PROTO_PATH api/v1x"
refused "greeter.txt is not a .proto file" greeter.txt
refused "no .proto file is named" ""
refused "lost.proto imports missing/away.proto, which is in none of $work/project, $MUSTER_SOURCE_DIR/proto: name its folder by IMPORT_PATH" \
    lost.proto
refused "$work/project/nowhere is not a folder" "api/v1/greeter.proto IMPORT_PATH nowhere"
refused "greeter.muster.c is already made with other words" "api/v1/greeter.proto)
muster_generate(stubs api/v1/greeter.proto ONLY_DESCRIPTORS"
refused "PROTO_PATH needs a value" "api/v1/greeter.proto PROTO_PATH"
[ -z "$(find "$work" -path "$work/b" -prune -o -name '*.muster.*' -print)" ] || fail "something was made outside the build folder"
echo "stubs are made below OUT; what is not below PROTO_PATH is refused"
