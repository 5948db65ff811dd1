#!/usr/bin/env python3
"""muster bench recover: kills inside operations, identical survivors, the keys of its JSON object."""
import json
import os
import subprocess
import sys

MUSTER = os.path.join(os.environ["MUSTER_BINARY_DIR"], "bin", "muster")


def main():
    command = [MUSTER, "bench", "recover", "-n", "3", "--bytes", "1M", "--kills", "3", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    result = json.loads(done.stdout)
    expected = {"bench": "recover", "n": 3, "bytes": 1 << 20, "identical": True, "survivors_restarted": 0}
    for key, value in expected.items():
        if result[key] != value:
            sys.exit(f"{key} is {result[key]}, not {value}: {done.stdout}")
    if result["kills_in_op"] < 3 or result["adopted"] + result["retried"] != result["kills_in_op"]:
        sys.exit(f"kills do not add up: {done.stdout}")
    for key in ("undisturbed_ms", "stall_ms", "overhead_ms"):
        if key not in result:
            sys.exit(f"no {key}: {done.stdout}")

    done = subprocess.run([MUSTER, "bench", "recover", "-n", "1"], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 2 or "-n" not in done.stderr and "tasks" not in done.stderr:
        sys.exit(f"-n 1 is not refused: {done.returncode} {done.stderr}")
    print("bench recover: three kills inside operations, survivors identical")


main()
