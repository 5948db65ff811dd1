#!/usr/bin/env python3
"""The main job: digits on four workers, a worker and then the leader killed inside an all_reduce."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()

BIN = os.path.join(os.environ["MUSTER_BINARY_DIR"], "bin")
SOURCE = os.environ["MUSTER_SOURCE_DIR"]
STEPS = 300


def run(*options, steps=STEPS):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "summary.json")
        command = [f"{BIN}/muster", "run", "-n", "4", "--json", path, *options, "--", f"{BIN}/digits", "--data",
                   f"{SOURCE}/examples/data/digits.csv", "--steps", str(steps), "--batch", "256"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        with open(path, encoding="utf-8") as file:
            return json.load(file), done.stdout + done.stderr


def check(what, is_true, summary, text):
    if not is_true:
        sys.exit(f"failed: {what}\n{json.dumps(summary)}\n{text}")


def check_survived(summary, text, kills):
    check("all steps", summary["steps"] == STEPS, summary, text)
    check("kills", summary["kills"] == kills, summary, text)
    check("no step lost", summary["steps_lost"] == 0, summary, text)
    check("identical", summary["identical"] is True, summary, text)
    check("a digest per worker", len(summary["digests"]) == 4 and len(set(summary["digests"])) == 1, summary, text)
    check("no survivor restarted", summary["survivors_restarted"] == 0, summary, text)
    check("accuracy", summary["accuracy"] >= 0.96, summary, text)


def main():
    summary, text = run()
    check_survived(summary, text, 0)
    check("no restart", summary["restarts"] == 0, summary, text)

    summary, text = run("--kill", f"worker:2@step={STEPS // 6}", "--kill", f"worker:0@step={STEPS // 2}")
    check_survived(summary, text, 2)
    check("both came back", summary["rejoins"] == 2 and summary["restarts"] == 2, summary, text)
    check("epochs", summary["epochs"] >= 5, summary, text)
    check("recovery is measured", 0 < summary["recovery_ms_max"] < 10000, summary, text)
    for words in ("worker:2 killed by SIGKILL", "worker:0 killed by SIGKILL", "rejoined"):
        check(f"says '{words}'", words in text, summary, text)

    summary, text = run("--kill", f"worker:1@step={STEPS // 4},chunk=0", "--kill", f"worker:3@step={STEPS // 4},chunk=1")
    check_survived(summary, text, 2)
    summary, text = run("--kill", "worker:1@step=20", "--kill", "worker:0@step=20", steps=20)
    check("who comes back to a finished job does not begin it anew",
          summary["steps"] == 20 and summary["identical"] is True and summary["kills"] == 2, summary, text)
    for worker in ("worker:0", "worker:1"):  # both, for who rejoins just before the others go
        check(f"and {worker} is told of", f"{worker} came back too late" in text or f"{worker} rejoined in" in text, summary, text)
    print("main job: trained through the deaths of a worker, the leader, and two at once")


main()
