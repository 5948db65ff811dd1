#!/usr/bin/env bash
# gpu_check, as tests/gpu/run starts it on a machine with a GPU: here with the fake libraries, for old and new versions of NCCL; and
# without any, where it says why it skips.
set -euo pipefail
. "$(dirname "$0")/../lib/guard.sh"
fakes=$MUSTER_BINARY_DIR/lib/fake_gpu
program=$MUSTER_BINARY_DIR/bin/gpu_check
export GPU_CHECK=$program ASAN_OPTIONS=detect_leaks=0 # of the unit tests; here processes end as they are
[ -x "$program" ] || skip "$program is not built"

code=0
text=$(MUSTER_CUDA_LIBRARY=/nowhere/libcuda.so.1 "$MUSTER_SOURCE_DIR/tests/gpu/run") || code=$?
[ "$code" = 77 ] && [[ $text == "skipped: no CUDA driver: "* ]] || { echo "without a driver: $code, $text"; exit 1; }
code=0
text=$(MUSTER_CUDA_LIBRARY=$fakes/libcuda.so.1 MUSTER_NCCL_LIBRARY=$fakes/21705/libnccl.so.2 "$MUSTER_SOURCE_DIR/tests/gpu/run") || code=$?
[ "$code" = 77 ] && [[ $text == "skipped: NCCL's version code is 21705"* ]] || { echo "with an old NCCL: $code, $text"; exit 1; }

export MUSTER_CUDA_LIBRARY=$fakes/libcuda.so.1
for version in 21803 23007; do
    export MUSTER_NCCL_LIBRARY=$fakes/$version/libnccl.so.2
    "$MUSTER_SOURCE_DIR/tests/gpu/run" --ranks 3 --bytes 65536 --kills 2
done
