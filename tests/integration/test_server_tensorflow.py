#!/usr/bin/env python3
"""Unmodified TensorFlow processes on muster: the coordination service of `muster coordinator` and of `muster server`, and groups
whose leader is a `muster server`. They are forks of this process, which has imported TensorFlow.

Needs tensorflow: tests/tools/install-strangers tensorflow, or MUSTER_TENSORFLOW_PYTHON names an interpreter that has it.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import guard

guard.enter()
import forked
import interop_roles as roles
import needs
from ports import hold_ports

BUILD = os.environ.get("MUSTER_BINARY_DIR", "build-asan")
HERE = os.path.dirname(os.path.abspath(__file__))
TASK = os.path.join(HERE, "..", "programs", "tensorflow_task.py")
DEADLINE_S = 240
if len(sys.argv) == 1:
    python = needs.stranger_python("tensorflow")
    os.execve(python, [python, __file__, "forks"], dict(os.environ, CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="2"))
__import__("tensorflow")


def serve(*words):
    process = subprocess.Popen([os.path.join(BUILD, "bin", "muster"), *words], stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().split()[1]


def run_job(server, address, leader, tasks=2):
    """What each task printed."""
    held = hold_ports(tasks)  # TensorFlow's workers must know their ports before they start
    ports = ",".join(str(each.getsockname()[1]) for each in held)
    outputs = [tempfile.TemporaryFile("w+") for _ in range(tasks)]
    errors = [tempfile.TemporaryFile("w+") for _ in range(tasks)]
    processes = [forked.Process(TASK, [task, ports, address, leader], {}, [0, outputs[task].fileno(), errors[task].fileno()])
                 for task in range(tasks)]
    try:
        for process in processes:
            process.wait(DEADLINE_S)
    finally:
        for process in processes:
            process.kill()
    texts = []
    for output, error, process in zip(outputs, errors, processes):
        output.seek(0)
        error.seek(0)
        texts.append(output.read().splitlines())
        if process.returncode != 0:
            print(error.read()[-3000:])
    assert server.poll() is None, "the server has ended"
    return texts


def stop(server):
    server.terminate()
    assert server.wait(DEADLINE_S) == 0


def expected(task, tasks, leader):
    total = float(sum(range(1, tasks + 1)))
    lines = [f"devices {tasks}", "sum" + f" {total}" * 4, "broadcast 7.0 8.0", f"key value{(task + 1) % tasks}"]
    return lines + (["healthy"] if leader == "coordinator" else [])


def main():
    server, address = serve("coordinator", "--tasks", "2")
    seen = run_job(server, address, "worker")
    assert seen == [expected(task, 2, "worker") for task in range(2)], seen
    stop(server)
    server, address = serve("server", "--cluster", '{"coordinator": ["127.0.0.1:0"]}', "--bind", "127.0.0.1",
                            "--coordination", "3")
    seen = run_job(server, address, "coordinator", 3)
    assert seen == [expected(task, 3, "coordinator") for task in range(3)], seen
    stop(server)
    return 0


sys.exit(main())
