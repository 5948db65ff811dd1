#!/usr/bin/env bash
# A program outside the tree builds against the installed library through pkg-config and through find_package.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

grep -q '^MUSTER_SANITIZE:[A-Z]*=$' "$MUSTER_BINARY_DIR/CMakeCache.txt" || sanitize=$(sed -n 's/^MUSTER_SANITIZE:[A-Z]*=//p' "$MUSTER_BINARY_DIR/CMakeCache.txt")
flags=${sanitize:+-fsanitize=$sanitize}
cmake --install "$MUSTER_BINARY_DIR" --prefix "$work/usr" >/dev/null
cat >"$work/main.c" <<'C'
#include <muster/muster.h>
#include <stdio.h>
int main(void)
{
    struct muster_address address;
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    if (muster_address_parse("[::1]:80", &address, NULL) != MUSTER_OK)
        return 1;
    puts(muster_address_format(&address, text));
    return 0;
}
C

export PKG_CONFIG_PATH="$work/usr/lib/pkgconfig:$(echo "$work"/usr/lib/*/pkgconfig)"
# shellcheck disable=SC2046
${CC:-cc} -std=c17 $flags "$work/main.c" $(pkg-config --cflags --libs muster) -o "$work/one"
export LD_LIBRARY_PATH="$work/usr/lib:$(dirname "$(find "$work/usr" -name libmuster.so)")"
[ "$("$work/one")" = "[::1]:80" ] || { echo "program built through pkg-config answered wrongly"; exit 1; }

cat >"$work/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(muster 0.1 REQUIRED)
add_executable(two main.c)
target_link_libraries(two muster::muster)
CMAKE
cmake -S "$work" -B "$work/b" -G Ninja -DCMAKE_PREFIX_PATH="$work/usr" -DCMAKE_C_FLAGS="$flags" >/dev/null
cmake --build "$work/b" >/dev/null
[ "$("$work/b/two")" = "[::1]:80" ] || { echo "program built through find_package answered wrongly"; exit 1; }
echo "installed library works through pkg-config and find_package"
