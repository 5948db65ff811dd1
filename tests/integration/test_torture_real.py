#!/usr/bin/env python3
"""Real processes whose memory and system calls fail by seed: an error or success, no crash, no hang, nothing half done.

usage: test_torture_real.py [CLASS…], or --seeds 1..500 [--scenario NAME] [--jobs N] for many; a folder with what was said stays of each
seed that fails.
"""
# Entries of ctest: Registry Job Coordinator Tasks Calls CallsTls Params ParamsJob Files Resumed TwoLaunchers OutsideRegistry
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ.setdefault("MUSTER_SOURCE_DIR", os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))),
                                "tests", "lib"))
os.environ.setdefault("MUSTER_BINARY_DIR", os.path.join(os.environ["MUSTER_SOURCE_DIR"], "build-asan"))
import guard

guard.enter()
from interop_roles import make_certificate, tls_client, tls_server
from puppets import BINARIES, MUSTER, PROGRAMS
from torture_real import OPENSSL, World, run_many, run_seeds

LEDGER = os.path.join(PROGRAMS, "ledger")
STEPPER = os.path.join(PROGRAMS, "stepper")
TASKS = os.path.join(PROGRAMS, "tasks")
INTEROP_SERVER, INTEROP_CLIENT = (os.path.join(BINARIES, "bin", f"interop_{role}") for role in ("server", "client"))
PARAMS_LEDGER = os.path.join(PROGRAMS, "params_ledger")
WRITES, WORKERS, STEPS, PUSHES = 40, 3, 20, 60


class Ledger:
    """The answers that a client got to its writes, and whether the registry agrees."""

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


def listen(world, name, *command, **options):
    """A server and its address; None: it has ended with a reason."""
    server = world.start(name, *command, **options)
    match = server.hear(r"(?m)^listening (\S+)$")
    if match is None:
        assert server.end() != 0, "it ends with 0 and has not served"
    return server, match and match[1]


def serve(world, data, **options):
    return listen(world, "registry", MUSTER, "registry", "--listen", "127.0.0.1:0", "--data", data, **options)


def ask_until_answered(world, server, *command):
    """What a client hears that nothing fails for, of a server that may still have failures before it; None: the server has ended."""
    for _ in range(40):
        client = world.run("reader", *command, has_faults=False)
        if client.child.returncode == 0:
            return client.out()
        if server.child.poll() is not None:
            break
    assert server.child.poll() is not None, f"{server.name} lives, and does not answer any more: {client.err()}"
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
        said = ask_until_answered(world, server, LEDGER, address)
        if said is not None:
            ledger.check_kept(said)
        if server.child.poll() is None:
            server.stop(world.rng.choice((signal.SIGTERM, signal.SIGKILL)))
    server, address = serve(world, data, has_faults=False)
    assert address is not None, "the data file cannot be served any more"
    ledger.check_kept(ask_until_answered(world, server, LEDGER, address))
    assert server.stop() == 0
    left = {path.name for path in world.folder.iterdir() if path.name.startswith("registry.db")}
    assert left <= {"registry.db"}, f"files are left beside the data: {left}"


def is_output_lost(launcher):
    """It has said that nobody gets any more what its workers print: no reason to fail."""
    return re.search(r"(?m)^muster: standard output .* is lost: ", launcher.err()) is not None


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
    if code == 0 and not is_output_lost(launcher):
        assert {rank for rank, _ in totals} | set(late) == {str(rank) for rank in range(WORKERS)}, f"it ends with 0, and only {totals} did the work"
        assert totals, "it ends with 0, and nobody did the work"
    if code == 0:
        assert "--json" not in options or json.loads(summary.read_text())["exit_code"] == 0, "it ends with 0, and its summary does not"


def keys_of(said, word):
    return dict(re.findall(rf"(?m)^{word} (\S+)=(\S+)$", said))


def coordinator(world):
    """Tasks that end with 0 have all met; the keys of those that were answered outlive the coordinator."""
    world.draw_faults({"muster": (2500, 300), "tasks": (600, 200), "muster,tasks": (1000, 250)})
    data = world.folder / "coordinator.db"
    kept = world.rng.choice((("--data", data), ("--data", data), ()))
    command = (MUSTER, "coordinator", "--listen", "127.0.0.1:0", "--tasks", WORKERS, *kept)
    server, address = listen(world, "coordinator", *command)
    acked = {}
    if address is not None:
        stay = ("stay",) if kept else ()
        client = world.start("tasks", TASKS, address, WORKERS, *stay)
        assert (client.end() == 0) == ("done\n" in client.out()), "the tasks end with 0 and are not done"
        acked = keys_of(client.out(), "acked")
        said = ask_until_answered(world, server, TASKS, address)
        is_lost = "coordination_data_lost" in server.err()  # it serves on, and has said so
        acked = {} if is_lost else acked
        if kept and said is not None:
            assert acked.items() <= keys_of(said, "has").items(), "a key is lost that was acknowledged"
        if server.child.poll() is None:
            server.stop(world.rng.choice((signal.SIGTERM, signal.SIGKILL)) if kept else signal.SIGTERM)
    if not kept:
        return
    server, address = listen(world, "coordinator", *command, has_faults=False)
    assert address is not None, "the data file cannot be served any more"
    found = keys_of(ask_until_answered(world, server, TASKS, address), "has")
    assert acked.items() <= found.items(), f"a key is lost that was acknowledged: {acked}, {found}"
    assert found.items() <= {f"t/{rank}": f"value-{rank}" for rank in range(WORKERS)}.items(), f"a key is there that nobody has put: {found}"
    assert server.stop() == 0


CALLS = ("empty_unary", "large_unary", "client_compressed_unary", "client_streaming", "server_streaming", "server_compressed_streaming",
         "ping_pong", "custom_metadata", "status_code_and_message", "unimplemented_method", "cancel_after_first_response")


def task_server(world):
    """A task of a cluster that serves the coordination of the others: those that end with 0 have all met."""
    world.draw_faults({"muster": (2500, 300), "tasks": (600, 200), "muster,tasks": (1000, 250)})
    server, address = listen(world, "server", MUSTER, "server", "--bind", "127.0.0.1", "--coordination", WORKERS)
    if address is None:
        return
    client = world.start("tasks", TASKS, address, WORKERS)
    assert (client.end() == 0) == ("done\n" in client.out()), "the tasks end with 0 and are not done"
    ask_until_answered(world, server, TASKS, address)
    if server.child.poll() is None:
        server.stop()


def calls(world, server_words=(), client_words=()):
    """A call ends as it should, or with an error; the server goes on."""
    world.draw_faults({"interop_server": (600, 120), "interop_client": (300, 60), "interop_server,interop_client": (400, 80)})
    server, address = listen(world, "server", INTEROP_SERVER, "--port", "0", *server_words)
    if address is None:
        return
    command = (INTEROP_CLIENT, "--server_host", "127.0.0.1", "--server_port", address.rpartition(":")[2], *client_words, "--test_case")
    for name in world.rng.sample(CALLS, 3):
        client = world.start("client", *command, name)
        assert (client.end() == 0) == (f"{name}: passed\n" in client.out()), f"{name} ends with 0 and has not passed"
    for name in CALLS[:2]:
        ask_until_answered(world, server, *command, name)
    if server.child.poll() is None:
        server.stop()


@functools.cache
def certificates():
    folder = tempfile.mkdtemp(prefix="torture-certificates-")
    unittest.addModuleCleanup(shutil.rmtree, folder)
    return make_certificate(folder)


def calls_tls(world):
    """The same under TLS."""
    world.use(OPENSSL)
    calls(world, tls_server(certificates()), tls_client(certificates()))


def params(world):
    """A push that was acknowledged counts once, whatever happens to the server, to its keeper or to the client."""
    world.draw_faults({"muster": (1500, 300), "params_ledger": (400, 100), "muster,params_ledger": (800, 150)})
    server, address = listen(world, "params", MUSTER, "params", "serve", "--listen", "127.0.0.1:0", "--memory-max", "64M", "--job", "j")
    if address is None:
        return
    client = world.start("client", PARAMS_LEDGER, address, "j", 0, PUSHES)
    check_pushes(client.end(), client.out())
    said = ask_until_answered(world, server, PARAMS_LEDGER, address, "j", 1, PUSHES)
    if said is not None:
        check_pushes(0, said)
    if server.child.poll() is None:
        server.stop()


def params_job(world):
    """Servers that keep replicas for each other, one of them, the registry or the client fails: a push that was acknowledged counts once."""
    world.draw_faults({"muster": (2500, 500), "params_ledger": (400, 100)})
    count = world.rng.choice((2, 3))
    fails = world.rng.choice(("registry", *range(count)))
    registry_server, registry_address = serve(world, world.folder / "registry.db", has_faults=fails == "registry")
    if registry_address is None:
        return
    command = (MUSTER, "params", "serve", "--listen", "127.0.0.1:0", "--memory-max", "64M", "--job", "j", "--replicas", "2", "--expect", count,
               "--registry", registry_address)
    servers, addresses = zip(*[listen(world, f"params{rank}", *command, has_faults=fails == rank) for rank in range(count)])
    if None not in addresses:
        client = world.start("client", PARAMS_LEDGER, ",".join(addresses), "j", 0, PUSHES)
        check_pushes(client.end(), client.out())
        said = ask_until_answered(world, registry_server if fails == "registry" else servers[fails], PARAMS_LEDGER, ",".join(addresses), "j", 1, PUSHES)
        if said is not None:
            check_pushes(0, said)
    for server in (*servers, registry_server):
        if server.child.poll() is None:
            server.stop()


def check_pushes(code, said):
    assert code != 0 or re.search(r"(?m)^done \d+ lost 0 doubled 0 ", said), f"it ends with 0, and says {said!r}"
    assert not re.search(r"(?m)^done .*(?:lost|doubled) [1-9]", said), f"pushes are lost, or count twice: {said!r}"


@functools.cache
def filled_registry():
    """A data file that the scenarios copy, and what it holds."""
    world = World("filled", 0)
    data = world.folder / "registry.db"
    server, address = serve(world, data, has_faults=False)
    assert world.run("client", LEDGER, address, WRITES, has_faults=False).child.returncode == 0
    said = world.run("reader", LEDGER, address, has_faults=False).out()
    assert server.stop() == 0
    folder = tempfile.mkdtemp(prefix="torture-filled-")
    unittest.addModuleCleanup(shutil.rmtree, folder)
    kept = shutil.move(data, folder)
    shutil.rmtree(world.folder)
    return pathlib.Path(kept), held(said)


def held(said):
    return sorted(re.findall(r"(?m)^has (\S+)=(\S*) ", said))


def check_holds(world, data, expected):
    """A data file that is whole."""
    server, address = serve(world, data, has_faults=False)
    assert address is not None, f"{data.name} cannot be served"
    assert held(ask_until_answered(world, server, LEDGER, address)) == expected, f"{data.name} holds something else"
    assert server.stop() == 0


def files(world):
    """A backup or a data file is whole, or not there."""
    world.draw_faults({"muster": (1500, 150)})
    world.use(OPENSSL)  # the checksum
    failing = world.rng.choice(("backup", "fetch", "serve and fetch", "restore"))
    original, expected = filled_registry()
    data, backup, copy = (world.folder / name for name in ("registry.db", "backup", "copy.db"))
    shutil.copy(original, data)
    server, source = None, ("--data", data)
    if "fetch" in failing:
        server, address = serve(world, data, has_faults="serve" in failing)
        source = ("--registry", address, "--timeout", "20")
    if source[1] is not None:
        saved = world.run("backup", MUSTER, "registry", "backup", *source, "--output", backup, has_faults=failing != "restore")
        assert backup.exists() or saved.child.returncode != 0, "the command exited with 0 but wrote no backup"
    if server is not None and server.child.poll() is None:
        server.stop()
    if backup.exists():
        made = world.run("restore", MUSTER, "registry", "restore", "--from", backup, "--data", copy, has_faults=failing == "restore")
        assert failing == "restore" or made.child.returncode == 0, "the backup is not whole"
        assert copy.exists() or made.child.returncode != 0, "the command exited with 0 but wrote no data file"
    for path in (data, copy):
        if path.exists():
            check_holds(world, path, expected)
    world.check_folder({"registry.db", "backup", "copy.db"})


def check_totals(launchers):
    """A launcher that ends with 0 has workers that have done their work; all that were told of have the same state. Which have."""
    totals = [pair for launcher in launchers for pair in re.findall(r"(?m)^\[worker:(\d)\] total (\S+)$", launcher.out())]
    assert {total for _, total in totals} <= {str(STEPS)}, f"workers end with different states: {totals}"
    late = [rank for launcher in launchers
            for rank in re.findall(r"(?m)worker:(\d) came back too late: the others have finished$", launcher.err())]
    return {rank for rank, _ in totals}, set(late)


def resumed(world):
    """A launcher that is killed, or fails, is taken over by the next: the work is done in the end, or it is said why not."""
    world.draw_faults({"muster": (3000, 1000), "stepper": (1500, 500)})
    first_fails = world.rng.random() < 0.5
    run = world.folder / "run"
    launchers = [world.start("launcher", MUSTER, "run", "-n", WORKERS, "--min-members-timeout", "5", "--resumable", run, "--", STEPPER, STEPS,
                             has_faults=first_fails or world.plan["FAULTS_PROGRAMS"] == "stepper", STEPPER_HURRY=str(world.folder / "hurry"))]
    launchers[0].hear_error(world.rng.choice(("view 1 with", r"\S")))
    if launchers[0].child.poll() is None:
        launchers[0].stop(signal.SIGKILL)
    (world.folder / "hurry").touch()
    for has_faults in (True, False):
        launchers.append(world.start("successor", MUSTER, "run", "--resume", run, has_faults=has_faults))
        if launchers[-1].end() == 0:
            break
    done, late = check_totals(launchers)
    late |= {rank for launcher in launchers for rank in re.findall(r"what worker:(\d) prints is lost from here on: ", launcher.err())}
    if launchers[-1].child.returncode == 0 and not any(map(is_output_lost, launchers)):
        assert done | late == {str(rank) for rank in range(WORKERS)}, f"it ends with 0, and only {done} did the work"


def two_launchers(world):
    """Two launchers of one job: each that ends with 0 has done its part."""
    world.draw_faults({"muster": (3000, 1000), "stepper": (1500, 500)})
    fails = world.rng.choice(({0}, {1}, {0, 1}, {"registry"})) if world.plan["FAULTS_PROGRAMS"] == "muster" else {0, 1}
    registry, address = serve(world, world.folder / "registry.db", has_faults="registry" in fails)
    if address is None:
        return
    launchers = [world.start(f"launcher{rank}", MUSTER, "run", "--nnodes", "1:2", "--node-rank", rank, "-n", "2", "--job", "two", "--registry", address,
                             "--min-members-timeout", "5", "--", STEPPER, STEPS, has_faults=rank in fails) for rank in range(2)]
    for launcher in launchers:
        launcher.end()
    check_totals(launchers)
    for rank, launcher in enumerate(launchers):
        done, late = check_totals([launcher])
        if launcher.child.returncode == 0 and not is_output_lost(launcher):
            assert done | late == {str(2 * rank), str(2 * rank + 1)}, f"launcher {rank} ends with 0, and only {done} did the work"
    if registry.child.poll() is None:
        registry.stop()
    check_serves(world, world.folder / "registry.db")


def check_serves(world, data):
    server, address = serve(world, data, has_faults=False)
    assert address is not None, "the data file cannot be served any more"
    assert server.stop() == 0


def outside_registry(world):
    """A job whose registry is another process: the launcher, a worker or the registry fails."""
    world.draw_faults({"muster": (3000, 1000), "stepper": (1500, 500)})
    fails = world.rng.choice(("registry", "launcher", "both"))
    registry_server, address = serve(world, world.folder / "registry.db", has_faults=fails != "launcher")
    if address is None:
        return
    launcher = world.start("launcher", MUSTER, "run", "-n", WORKERS, "--job", "one", "--registry", address, "--min-members-timeout", "5", "--",
                           STEPPER, STEPS, has_faults=fails != "registry" or world.plan["FAULTS_PROGRAMS"] == "stepper")
    code = launcher.end()
    done, late = check_totals([launcher])
    if code == 0 and not is_output_lost(launcher):
        assert done | late == {str(rank) for rank in range(WORKERS)}, f"it ends with 0, and only {done} did the work"
    if registry_server.child.poll() is None:
        registry_server.stop()
    check_serves(world, world.folder / "registry.db")


SCENARIOS = [registry, job, coordinator, task_server, calls, calls_tls, params, params_job, files, resumed, two_launchers, outside_registry]


class Registry(unittest.TestCase):
    def test_what_was_acknowledged_is_there_after_a_restart(self):
        run_seeds(self, registry, range(1, 13))


class Job(unittest.TestCase):
    def test_a_job_does_its_work_or_says_why_not(self):
        run_seeds(self, job, range(1, 13))

    def test_what_once_failed(self):
        """Crashes of the launcher, and of OpenSSL in it; no word of the reason; a worker that was not heard; a leak."""
        run_seeds(self, job, (14, 21, 35, 47, 91, 134, 318))


class Coordinator(unittest.TestCase):
    def test_tasks_meet_or_say_why_not(self):
        run_seeds(self, coordinator, range(1, 11))

    def test_what_once_failed(self):
        """Data that are lost, and told so; a request that was never sent, and an address that was not known."""
        run_seeds(self, coordinator, (24, 42, 73))


class Calls(unittest.TestCase):
    def test_a_call_ends_as_it_should_or_says_why_not(self):
        run_seeds(self, calls, range(1, 13))

    def test_what_once_failed(self):
        """A server that did not know its address; a call that failed without a word."""
        run_seeds(self, calls, (17, 34))


class Tasks(unittest.TestCase):
    def test_tasks_meet_or_say_why_not(self):
        run_seeds(self, task_server, range(1, 7))


class CallsTls(unittest.TestCase):
    def test_a_call_ends_as_it_should_or_says_why_not(self):
        run_seeds(self, calls_tls, range(1, 7))


class Params(unittest.TestCase):
    def test_a_push_counts_once_or_it_is_said_why_not(self):
        run_seeds(self, params, range(1, 9))

    def test_what_once_failed(self):
        """A server that did not know its address, and ended as if it had served."""
        run_seeds(self, params, (51,))


class ParamsJob(unittest.TestCase):
    def test_a_push_counts_once_on_the_servers_that_are_left(self):
        run_seeds(self, params_job, range(1, 9))


class Files(unittest.TestCase):
    def test_a_file_is_whole_or_not_there(self):
        run_seeds(self, files, range(1, 9))

    def test_what_once_failed(self):
        """A part file that was left behind; causes that were not told."""
        run_seeds(self, files, (46, 83, 94))


class Resumed(unittest.TestCase):
    def test_the_next_launcher_takes_over_or_says_why_not(self):
        run_seeds(self, resumed, range(1, 7))

    def test_what_once_failed(self):
        """Output that was lost in silence."""
        run_seeds(self, resumed, (194, 205))


class TwoLaunchers(unittest.TestCase):
    def test_each_does_its_part_or_says_why_not(self):
        run_seeds(self, two_launchers, range(1, 6))

    def test_what_once_failed(self):
        """A refusal without a word; a board's peer that was released twice."""
        run_seeds(self, two_launchers, (9, 48))


class OutsideRegistry(unittest.TestCase):
    def test_a_job_does_its_work_or_says_why_not(self):
        run_seeds(self, outside_registry, range(1, 7))


if __name__ == "__main__":
    run_many(SCENARIOS) or unittest.main()
