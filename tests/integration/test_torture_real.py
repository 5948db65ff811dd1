#!/usr/bin/env python3
"""Real processes whose memory and system calls fail by seed: an error or success, no crash, no hang, nothing half done.

usage: test_torture_real.py [CLASS…], or --seeds 1..500 [--scenario NAME] [--jobs N] for many; a folder with what was said stays of each
seed that fails.
"""
# Entries of ctest: Registry Job
import json
import os
import re
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ.setdefault("MUSTER_SOURCE_DIR", os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))),
                                "tests", "lib"))
os.environ.setdefault("MUSTER_BINARY_DIR", os.path.join(os.environ["MUSTER_SOURCE_DIR"], "build-asan"))
import guard

guard.enter()
from puppets import MUSTER, PROGRAMS
from torture_real import OPENSSL, run_many, run_seeds

LEDGER = os.path.join(PROGRAMS, "ledger")
STEPPER = os.path.join(PROGRAMS, "stepper")
WRITES, WORKERS, STEPS = 40, 3, 20


class Ledger:
    """What a client was told about its writes, and whether the registry agrees."""

    def __init__(self, said):
        self.outcomes = re.findall(r"(?m)^(acked|unknown|refused) (\S+?)(=|-)(\d*)(?: (\d+)$)?", said)
        self.saw = [(key, sign, value, int(revision)) for key, sign, value, revision in
                    re.findall(r"(?m)^saw (\S+?)(=|-)(\d*) (\d+)$", said)]

    def values_of(self, key):
        """Those that it may have now: the last acknowledged one, or one of unknown outcome behind it; "" is absent."""
        values = {""}
        for outcome, name, sign, value, _ in self.outcomes:
            if name == key and outcome == "acked":
                values = {value}
            elif name == key and outcome == "unknown":
                values |= {value}
        return values

    def check_kept(self, said):
        found = {key: (value, int(revision)) for key, value, revision in re.findall(r"(?m)^has (\S+?)=(\d+) (\d+)$", said)}
        for key in {name for _, name, *_ in self.outcomes} | set(found):
            known = "/pair/a" if key == "/pair/b" else key
            is_value = found.get(key, ("", 0))[0]
            assert is_value in self.values_of(known), f"{key} is {is_value!r}, and must be one of {self.values_of(known)}"
        assert found.get("/pair/a") == found.get("/pair/b"), f"half a transaction is there: {found}"
        for outcome, key, _, value, revision in self.outcomes:
            if outcome == "acked" and found.get(key, ("", 0))[0] == value != "":
                assert found[key][1] == int(revision), f"{key}={value} has revision {found[key][1]}, and was acknowledged with {revision}"

    def check_watch(self):
        """In order, each once, none missing between two that were seen, and none that was refused."""
        revisions = [change[3] for change in self.saw]
        assert revisions == sorted(revisions) and len(set(self.saw)) == len(self.saw), f"the watch went astray: {self.saw}"
        acked = {(key, sign, value, int(revision)) for outcome, key, sign, value, revision in self.outcomes if outcome == "acked"}
        missing = {change for change in acked if revisions and 0 < change[3] <= revisions[-1]} - set(self.saw)
        assert not missing, f"the watch missed {missing}"
        refused = {(key, sign, value) for outcome, key, sign, value, _ in self.outcomes if outcome == "refused"}
        assert not refused & {change[:3] for change in self.saw}, "a refused write was applied"


def serve(world, data, **options):
    """The server and its address; None: it has ended with a reason."""
    server = world.start("registry", MUSTER, "registry", "--listen", "127.0.0.1:0", "--data", data, **options)
    match = server.hear(r"(?m)^listening (\S+)$")
    if match is None:
        assert server.end() != 0, "it ends with 0 and has not served"
    return server, match and match[1]


def read_all(world, address, server):
    """From a server that may still have failures before it: at last it answers, or has ended."""
    for _ in range(40):
        client = world.start("reader", LEDGER, address, has_faults=False)
        if client.end() == 0:
            return client.out()
        if server.child.poll() is not None:
            break
    assert server.child.poll() is not None, "the registry lives, and does not answer any more"
    return None


def registry(world):
    """What was acknowledged is there in the end, what was refused is not, and transactions are whole."""
    world.draw_faults({"muster": (5000, 600), "ledger": (400, 180), "muster,ledger": (1000, 300)})
    data = world.folder / "registry.db"
    server, address = serve(world, data)
    ledger = Ledger("")
    if address is not None:
        client = world.start("client", LEDGER, address, WRITES)
        code = client.end()
        assert code != 0 or "done\n" in client.out(), "the client ends with 0 and is not done"
        ledger = Ledger(client.out())
        ledger.check_watch()
        said = read_all(world, address, server)
        if said is not None:
            ledger.check_kept(said)
        if server.child.poll() is None:
            server.stop(world.rng.choice((signal.SIGTERM, signal.SIGKILL)))
    server, address = serve(world, data, has_faults=False)
    assert address is not None, "the data file cannot be served any more"
    ledger.check_kept(read_all(world, address, server))
    assert server.stop() == 0
    left = {path.name for path in world.folder.iterdir() if path.name.startswith("registry.db")}
    assert left <= {"registry.db"}, f"files are left beside the data: {left}"


def job(world):
    """A job that ends with 0 has done its work, in all of its workers alike; one that does not says why."""
    world.draw_faults({"muster": (3000, 1000), "stepper": (1500, 500), "muster,stepper": (1500, 500)})
    summary = world.folder / "summary.json"
    options = world.rng.choice((("--kill", "1@step=5"), ("--tls", "auto"), ("--log-dir", world.folder / "logs"), ("--json", summary),
                                ("--status", "127.0.0.1:0"), (), ()))
    launcher = world.start("launcher", MUSTER, "run", "-n", WORKERS, "--min-members-timeout", "5", *options, "--", STEPPER, STEPS,
                           **(OPENSSL if "--tls" in options else {}))
    code = launcher.end()
    totals = re.findall(r"(?m)^\[worker:(\d)\] total (\S+)$", launcher.out())
    assert {total for _, total in totals} <= {str(STEPS)}, f"workers end with different states: {totals}"
    late = re.findall(r"(?m)worker:(\d) came back too late: the others have finished$", launcher.err())
    if code == 0:
        assert {rank for rank, _ in totals} | set(late) == {str(rank) for rank in range(WORKERS)}, f"it ends with 0, and only {totals} did the work"
        assert totals, "it ends with 0, and nobody did the work"
        assert "--json" not in options or json.loads(summary.read_text())["exit_code"] == 0, "it ends with 0, and its summary does not"


SCENARIOS = [registry, job]


class Registry(unittest.TestCase):
    def test_what_was_acknowledged_is_there_after_a_restart(self):
        run_seeds(self, registry, range(1, 13))


class Job(unittest.TestCase):
    def test_a_job_does_its_work_or_says_why_not(self):
        run_seeds(self, job, range(1, 13))

    def test_what_once_failed(self):
        """Crashes of the launcher, and of OpenSSL in it; no word of the reason; a worker that was not heard; a leak."""
        run_seeds(self, job, (14, 21, 35, 47, 91, 134, 318))


if __name__ == "__main__":
    run_many(SCENARIOS) or unittest.main()
