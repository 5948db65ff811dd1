#!/usr/bin/env python3
"""muster bench allreduce: between real processes all ranks get the same bytes, and the keys of the contract are there.

Processes run at their own pace: members start while early chunks of others are half received."""
import json
import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()
import needs

MUSTER = pathlib.Path(os.environ.get("MUSTER_BINARY_DIR", "build-asan")) / "bin/muster"
KEYS = {"bench", "n", "bytes", "wire", "memory", "algorithm", "median_us", "p99_us", "identical", "sent_bytes", "memory_bytes",
        "wire_reason", "input", "process_vm_readv"}


def bench(*arguments, **variables):
    output = subprocess.run([MUSTER, "bench", "allreduce", "--json", *arguments], capture_output=True, text=True,
                            timeout=120, env={**os.environ, **variables})
    assert output.returncode == 0, output.stderr
    return [json.loads(line) for line in output.stdout.splitlines()]


def check_sizes(n, dtype, wire, memory):
    lines = bench("-n", str(n), "--bytes", "1K,64K,512K,3M", "--iters", "40", "--dtype", dtype, "--wire", wire,
                  "--memory", memory)
    assert [line["bytes"] for line in lines] == [1 << 10, 64 << 10, 512 << 10, 3 << 20], lines
    for line in lines:
        assert KEYS <= line.keys(), line
        assert line["sent_bytes"] == line["plan_sent_bytes"] > 0, line
        assert 0 < line["memory_bytes"], line
        # None of the 20 operations allocates, but over TCP a pool may still grow, by chance by up to ten buffers.
        assert line["steady_allocations"] < (20 if line["wire"] == "tcp" else 5), line
        assert line["identical"] is True and line["n"] == n and line["median_us"] > 0, line
        assert line["memory"] == memory and line["wire"] == (wire if wire != "auto" else line["wire"]), line
    if wire == "tcp":
        assert lines[0]["algorithm"] == "direct" and lines[-1]["algorithm"] == "ring", lines


def check_past_the_caches():
    line, = bench("-n", "2", "--bytes", "16M", "--iters", "2", "--memory", "private")
    assert (line["identical"], line["input"]) == (True, "staged"), line


def check_dtype(dtype):
    lines = bench("-n", "3", "--bytes", "1K,512K", "--iters", "4", "--dtype", dtype)
    assert [(line["dtype"], line["identical"]) for line in lines] == [(dtype, True)] * 2, lines


def check_forced():
    """Small tensors, too, which are exchanged directly otherwise."""
    for algorithm in ("ring", "halving", "double_tree", "blocks"):
        line, = bench("-n", "3", "--bytes", "1K", "--iters", "2", "--wire", "tcp", "--algorithm", algorithm)
        assert (line["algorithm"], line["identical"], line["iters"]) == (algorithm, True, 2), line
        assert 0 < line["median_us"] <= line["p99_us"], line


def check_choice(memory, wire, reason, inputs, **variables):
    lines = bench("-n", "2", "--bytes", "1K,1M", "--iters", "4", "--memory", memory, **variables)
    for line, shown in zip(lines, inputs, strict=True):
        assert (line["wire"], line["wire_reason"], line["input"]) == (wire, reason, shown), line
        assert (line["process_vm_readv"] != "") == (wire == "shm"), line


def check_choices():
    check_choice("mapped", "tcp", "MUSTER_WIRE=tcp", ["sent", "sent"], MUSTER_WIRE="tcp")
    if bench("-n", "2", "--bytes", "1K", "--iters", "1")[0]["wire_reason"] == "this process has no board":
        return  # no memfd here
    check_choice("mapped", "shm", "all members share a host", ["slot", "mapped"])
    check_choice("private", "shm", "all members share a host", ["slot", "staged"])


def check_device():
    """With the fake libraries, and without a device."""
    fakes = MUSTER.parents[1] / "lib" / "fake_gpu"
    libraries = {"MUSTER_CUDA_LIBRARY": str(fakes / "libcuda.so.1"), "FAKE_CUDA_GUARDED": "1",
                 "MUSTER_NCCL_LIBRARY": str(fakes / "23007" / "libnccl.so.2")}
    for line in bench("-n", "2", "--bytes", "1K,1M", "--iters", "4", "--memory", "device", **libraries):
        assert (line["wire"], line["input"], line["algorithm"], line["identical"]) == ("nccl", "device", "nccl", True), line
        assert line["wire_reason"] == "nccl 2.30.7 on Fake GPU 0", line
    output = subprocess.run([MUSTER, "bench", "allreduce", "--bytes", "1K", "--memory", "device"], capture_output=True, text=True,
                            timeout=120, env={**os.environ, **libraries, "FAKE_CUDA_NO_DEVICE": "1"})
    assert output.returncode == 1 and re.search(
        "rank [01]: --memory device needs a device, its driver and NCCL: .*no CUDA-capable device.*use mapped or private",
        output.stderr), output.stderr


def check_compute():
    begin = time.monotonic()
    line, = bench("-n", "2", "--bytes", "1K", "--iters", "5", "--compute-us", "100000")
    assert line["compute_us"] == 100000 and line["identical"], line
    assert time.monotonic() - begin > 0.5, "each of the 5 operations comes behind 0.1 s"


def check_usage():
    output = subprocess.run([MUSTER, "bench", "allreduce", "--bytes", "7"], capture_output=True, text=True, timeout=60)
    assert output.returncode == 2 and "--bytes must hold multiples of 4 bytes, the size of an element, got '7' in 7" in output.stderr, output.stderr
    output = subprocess.run([MUSTER, "bench", "allreduce", "--bytes", "1K,1T"], capture_output=True, text=True, timeout=60)
    assert output.returncode == 2 and "--bytes must hold sizes such as 65536, 64K, 1M or 2G, got '1T' in 1K,1T" in output.stderr, output.stderr


def limited(files, *arguments, **variables):
    return subprocess.run(["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", MUSTER, "bench", *arguments],
                          capture_output=True, text=True, timeout=120, env={**os.environ, **variables})


def check_limits():
    for bench in (["allreduce", "-n", "3", "--bytes", "1K"], ["recover", "-n", "3", "--bytes", "64K", "--kills", "1"]):
        output = limited(20, *bench)
        assert output.returncode == 1 and "the limit is 20; raise it: ulimit -n" in output.stderr, output
    # An error of one rank ends them all at once.
    output = subprocess.run([MUSTER, "bench", "allreduce", "-n", "3", "--bytes", "64K"], capture_output=True, text=True,
                            timeout=120, env={**os.environ, "MUSTER_WIRE": "pigeon"})
    assert output.returncode == 1 and "MUSTER_WIRE=pigeon: expected auto or tcp" in output.stderr, output


if __name__ == "__main__":
    needs.program("muster")
    check_usage()
    check_limits()
    check_choices()
    check_device()
    check_compute()
    check_forced()
    check_sizes(2, "f32", "tcp", "private")
    check_sizes(3, "u8", "tcp", "mapped")
    check_sizes(2, "f32", "auto", "mapped")
    check_sizes(4, "f64", "auto", "private")
    check_past_the_caches()
    for dtype in "f16 bf16 f64 i8 i32 u32 i64 u64 bool i16 u16".split():
        check_dtype(dtype)
