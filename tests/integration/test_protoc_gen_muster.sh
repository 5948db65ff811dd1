#!/usr/bin/env bash
# protoc-gen-muster: what it makes of tests/proto/stub_sample.proto is what stands in tests/proto/golden, compiles without a
# warning in C and C++, and files that no stub can be made of are refused with a reason.
set -euo pipefail
. "$(dirname "$0")/../lib/guard.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
plugin=$MUSTER_BINARY_DIR/bin/protoc-gen-muster
fail() { echo "$*"; exit 1; }

cd "$MUSTER_SOURCE_DIR"
protoc --plugin="protoc-gen-muster=$plugin" --muster_out="$work" -I . tests/proto/stub_sample.proto
for suffix in h c; do
    diff -u "tests/proto/golden/stub_sample.muster.$suffix.txt" "$work/tests/proto/stub_sample.muster.$suffix" ||
        fail "stub_sample.muster.$suffix differs; if that is meant, copy it to tests/proto/golden"
done

protoc --plugin="protoc-gen-muster=$plugin" --muster_out="$work" --muster_opt=only_messages -I . tests/proto/stub_sample.proto tests/proto/stub_place.proto
strict=(-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wformat=2
    -Wwrite-strings -Wundef -Werror -fsyntax-only -I include -I "$work")
"${CC:-cc}" -std=c17 "${strict[@]}" "$work/tests/proto/stub_sample.muster.c"
echo '#include "tests/proto/stub_sample.muster.h"' >"$work/user.cc"
sed -i '/(\*delete)/s/delete/delete_/' "$work/tests/proto/stub_sample.pb-c.h" # a keyword that protobuf-c leaves
"${CXX:-c++}" -std=c++17 -Wall -Wextra -Werror -fsyntax-only -I include -isystem "$work" "$work/user.cc"

# refuse TEXT OPTIONS <PROTO: protoc fails, and says TEXT.
refuse() {
    local text=$1 out
    shift
    cat >"$work/bad.proto"
    if out=$(protoc --plugin="protoc-gen-muster=$plugin" --muster_out="$work" -I "$work" "$@" "$work/bad.proto" 2>&1); then
        fail "accepted what should say: $text"
    fi
    grep -qF -- "$text" <<<"$out" || fail "expected '$text', got: $out"
}
refuse "bad.proto: message M has a field has_b, and its optional field b needs a member of that name in C: rename one" <<'P'
syntax = "proto3";
message M { int32 has_b = 1; optional int32 b = 2; }
service S { rpc Get(M) returns (M); }
P
refuse "/nowhere/protoc-gen-c cannot be started (No such file or directory): install protobuf-c-compiler" --muster_opt=messages=/nowhere/protoc-gen-c <<'P'
syntax = "proto3";
message M {}
P
refuse "false ended with exit code 1" --muster_opt=messages=false <<'P'
syntax = "proto3";
message M {}
P
refuse "head answered something that is not a response of a plugin" --muster_opt=messages=head <<'P'
syntax = "proto3";
message M {}
P
refuse "p.S.GetUrl and p.S.Get_url would both be p_s_get_url in C: rename one" <<'P'
syntax = "proto3";
package p;
message M {}
service S { rpc GetUrl(M) returns (M); rpc Get_url(M) returns (M); }
P
refuse "p.Foo.BarBaz and p.FooBar.Baz would both be p_foo_bar_baz in C" <<'P'
syntax = "proto3";
package p;
message M {}
service Foo { rpc BarBaz(M) returns (M); }
service FooBar { rpc Baz(M) returns (M); }
P
refuse "unknown option 'everything': it must be messages, only_messages" --muster_opt=everything <<'P'
syntax = "proto3";
message M {}
P

# Descriptors alone need no messages of protobuf-c, so that 'optional' is no matter.
cat >"$work/any.proto" <<'P'
syntax = "proto2";
package p;
message M { optional int32 a = 1; extensions 100 to 200; message In { extend M { optional string note = 101; } } }
extend M { optional int32 more = 100; }
service S { rpc Get(M) returns (stream M); }
P
protoc --plugin="protoc-gen-muster=$plugin" --muster_out="$work" --muster_opt=only_descriptors -I "$work" "$work/any.proto"
"${CC:-cc}" -std=c17 "${strict[@]}" "$work/any.muster.c"
for text in '"p.S.Get",' '"p.M.In.note",' '"p.more",' '{"p.M", 100},' '{"p.M", 101},'; do
    grep -qF -- "$text" "$work/any.muster.c" || fail "any.muster.c lacks $text"
done
if grep -q stub "$work/any.muster.h"; then fail "any.muster.h has stubs"; fi

if "$plugin" </dev/null >/dev/null 2>&1; then :; else fail "an empty request is a request of nothing"; fi
if printf '\377\377' | "$plugin" 2>"$work/said"; then fail "rubbish was taken"; fi
grep -q "not a request of protoc" "$work/said" || fail "rubbish: $(cat "$work/said")"
"$plugin" --help | grep -q 'muster_out' || fail "no help"
echo "stubs are as recorded and compile; what cannot be made is refused"
