#!/usr/bin/env python3
"""gloo through PyTorch, measured as muster bench allreduce measures: rewrite, meet, clock; the slowest rank counts.

usage: MEET_FILE=… MEET_LIBRARY=… gloo_allreduce.py RANKS BYTES:ITERATIONS…"""
import ctypes
import json
import os
import statistics
import sys
import tempfile
import time
import warnings

WARM_UP = 3


def open_meet(rank):
    library = ctypes.CDLL(os.environ["MEET_LIBRARY"])
    library.peer_meet_open.restype = ctypes.c_void_p
    library.peer_meet_all.argtypes = [ctypes.c_void_p, ctypes.c_uint]
    library.peer_meet_took.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_double]
    library.peer_meet_slowest.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.peer_meet_slowest.restype = ctypes.c_double
    return library, library.peer_meet_open(rank)


def measure(torch, distributed, library, meet, rank, size, spec):
    byte_count, iterations = (int(word) for word in spec.split(":"))
    index = torch.arange(byte_count // 4)
    patterns = [((index + rank + i) % 3).float() for i in range(3)]
    truth = [sum(((index[:999] + r + i) % 3).float() for r in range(size)) for i in range(3)]
    tensor = torch.empty(byte_count // 4)
    samples, is_right = [], True
    for i in range(WARM_UP + iterations):
        tensor.copy_(patterns[i % 3])
        library.peer_meet_all(meet, size)
        begin = time.perf_counter()
        distributed.all_reduce(tensor)
        took = (time.perf_counter() - begin) * 1e6
        is_right = is_right and torch.equal(tensor[:999], truth[i % 3])
        library.peer_meet_took(meet, rank, took)
        library.peer_meet_all(meet, size)
        if i >= WARM_UP:
            samples.append(library.peer_meet_slowest(meet, size))
    if rank == 0:
        print(json.dumps({"n": size, "bytes": byte_count, "median_us": statistics.median(samples), "right": is_right}),
              flush=True)
    return is_right


def run_rank(rank, size, specs, store):
    warnings.simplefilter("ignore")
    import torch
    import torch.distributed as distributed
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    library, meet = open_meet(rank)
    results = [measure(torch, distributed, library, meet, rank, size, spec) for spec in specs]
    distributed.destroy_process_group()
    return 0 if all(results) else 1


def main():
    size, specs = int(sys.argv[1]), sys.argv[2:]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(size):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    code = run_rank(rank, size, specs, folder + "/store")
                finally:
                    os._exit(code)
            children.append(child)
        return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    sys.exit(main())
