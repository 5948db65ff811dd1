#!/usr/bin/env python3
"""muster bench recover: kills inside operations, identical survivors, the keys of its JSON object."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()

MUSTER = os.path.join(os.environ["MUSTER_BINARY_DIR"], "bin", "muster")
QUANTILES = {"count", "median", "p90", "p99", "max"}


def run(*args, **variables):
    command = [MUSTER, "bench", "recover", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=1000, check=False, env={**os.environ, **variables})


def expect(condition, text, done):
    if not condition:
        sys.exit(f"{text}\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}")


def check(tasks, size, count, kills, wire, memory):
    """One run; sizes from one direct message to a ring of many chunks."""
    done = run("-n", str(tasks), "--bytes", size, "--kills", str(kills), "--wire", wire, "--memory", memory, "--json")
    expect(done.returncode == 0, f"n={tasks} bytes={size} failed", done)
    expect("did not stop" not in done.stderr, "the workers were ended by a signal", done)
    result = json.loads(done.stdout)
    expected = {
        "bench": "recover", "n": tasks, "bytes": count, "kills_in_op": kills, "identical": True, "steps_lost": 0,
        "survivors_restarted": 0, "memory": memory,
    }
    if wire == "tcp":
        expected["wire"] = "tcp"
    for key, value in expected.items():
        expect(result[key] == value, f"{key} is {result[key]}, not {value}", done)
    expect(result["kills"] >= kills, "fewer kills than asked for", done)
    expect(result["adopted"] + result["retried"] == kills, "kills do not add up", done)
    expect(result["steps"] > kills, "no step between the kills", done)
    for key in ("undisturbed_ms", "undisturbed_one_less_ms", "seconds"):
        expect(result[key] >= 0, f"no {key}", done)
    expect(set(result["stall_ms"]) == QUANTILES and result["stall_ms"]["count"] == kills, "stalls", done)
    overhead = result["overhead_ms"]
    for name, times in (("stall", result["stall_ms"]), *overhead.items()):
        expect(times is None or times["median"] <= times["p90"] <= times["p99"] <= times["max"], f"the order of {name}", done)
    expect(set(overhead) == {"all", "adopt", "retry", "control"}, "overheads", done)
    for verdict, counter in (("adopt", "adopted"), ("retry", "retried")):
        one = overhead[verdict]
        expect((one["count"] if one else 0) == result[counter], f"overhead of {verdict}", done)
    expect(overhead["control"]["count"] > 0, "no undisturbed operation", done)


def main():
    for case in ((3, "1M", 1 << 20, 3, "tcp", "private"), (2, "4K", 1 << 12, 4, "tcp", "private"),
                 (5, "256K", 1 << 18, 2, "tcp", "mapped"), (3, "1M", 1 << 20, 4, "auto", "mapped"),
                 (3, "1M", 1 << 20, 3, "auto", "private"), (2, "4M", 4 << 20, 6, "auto", "private"),
                 (2, "4K", 1 << 12, 3, "auto", "mapped")):
        check(*case)

    done = run("-n", "2", "--bytes", "4M", "--kills", "2", "--victim", "bystander", "--victim-rss-bytes", "8M", "--json")
    expect(done.returncode == 0, "the end of a bystander has disturbed the workers", done)
    result = json.loads(done.stdout)
    expect(result["victim"] == "bystander" and result["adopted"] == 2 and result["overhead_ms"]["all"]["count"] == 2,
           "operations beside the end of a bystander", done)

    done = run("-n", "2", "--bytes", "4K", "--kills", "100000", "--timeout", "1", "--json")
    expect(done.returncode == 1, "a run that exceeds its time ends with 1", done)
    expect("--timeout are over" in done.stderr and "waiting for" in done.stderr and "worker:0: life" in done.stderr,
           "it does not say what it waited for", done)

    # Without workers there is nothing to wait for; and a worker says why it ends.
    done = run("-n", "2", "--bytes", "4K", "--kills", "1", "--json", MUSTER_WIRE="pigeon")
    expect(done.returncode == 1 and done.stdout == "", "a launcher that ended early left nothing to print", done)
    expect(done.stderr.count("the launcher ended early") == 1 and "MUSTER_WIRE=pigeon" in done.stderr, "it does not say why", done)
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(64 << 20)
        done = subprocess.run([MUSTER, "bench", "recover-worker"], capture_output=True, text=True, timeout=1000, check=False,
                              env={**os.environ, "MUSTER_BENCH_RECOVER_FILE": file.name, "RANK": "0", "MUSTER_WIRE": "pigeon"})
    expect(done.returncode == 1 and "task 0: " in done.stderr and "MUSTER_WIRE=pigeon" in done.stderr, "a worker does not say why", done)

    done = run("-n", "1")
    expect(done.returncode == 2 and ("-n" in done.stderr or "tasks" in done.stderr), "-n 1 is not refused", done)
    print("bench recover: kills inside operations, survivors identical")


main()
