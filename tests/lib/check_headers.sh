#!/bin/sh
# Each header compiles alone: the public ones in strict C17 and C++17, the internal ones with the project's flags.
set -eu
root=${MUSTER_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
gen=${MUSTER_BINARY_DIR:-$root/build-asan}/gen
cc=${CC:-cc}
cxx=${CXX:-c++}
failed=0
count=0

compile() { # compiler language standard header flags…
    compiler=$1 language=$2 standard=$3 header=$4
    shift 4
    count=$((count + 1))
    if ! "$compiler" -x "$language" -std="$standard" -Wall -Wextra -Werror -fsyntax-only "$@" "$header" 2>/tmp/check_headers.$$; then
        echo "$header does not compile alone as $standard:"
        head -5 /tmp/check_headers.$$
        failed=$((failed + 1))
    fi
    rm -f /tmp/check_headers.$$
}

for header in "$root"/include/muster/*.h; do
    compile "$cc" c c17 "$header" -pedantic -I "$root/include"
    compile "$cxx" c++ c++17 "$header" -I "$root/include"
done
for folder in runtime proto net resolvers collective cluster params training; do
    for header in $(find "$root/$folder" -name '*.h'); do
        compile "$cc" c c17 "$header" -D_GNU_SOURCE -I "$root" -I "$root/include" -I "$gen"
    done
done
echo "$count compilations, $failed failed"
[ "$failed" -eq 0 ]
