#!/usr/bin/env bash
# The reduction kernels on another processor (aarch64, whose baseline has NEON), run by an emulator: every type, reduction and count
# bit by bit as the reference; and the compiler did make vector instructions of the loops.
set -euo pipefail
. "$(dirname "$0")/../lib/guard.sh"
source=${MUSTER_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
compiler=aarch64-linux-gnu-gcc
need_tool $compiler gcc-aarch64-linux-gnu
need_tool qemu-aarch64-static qemu-user-static
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$source"
flags=(-std=c17 -D_GNU_SOURCE -O2 -ffp-contract=off -fno-math-errno -I. -Iinclude -Itests/lib -Itests/lib/cross)
$compiler "${flags[@]}" -O3 -c collective/kernel/kernels_baseline.c -o "$folder/baseline.o"
$compiler "${flags[@]}" -static tests/unit/collective/kernel/test_kernels.c tests/lib/kernel_reference.c collective/kernel/kernels.c \
    collective/kernel/kernels_avx2.c collective/kernel/kernels_avx512.c "$folder/baseline.o" runtime/value/assert.c runtime/value/status.c runtime/value/errno_text.c -lm -o "$folder/test_kernels"
qemu-aarch64-static "$folder/test_kernels"
vectors=$(aarch64-linux-gnu-objdump -d "$folder/baseline.o" | grep -cE '(fadd|fmul|fmaxnm|fmax|add|smax|umin|orr)\s+v[0-9]+\.' || true)
echo "$vectors vector instructions"
[ "$vectors" -ge 100 ]
