#!/usr/bin/env python3
"""Mistakes of users: each time a clear error that names the culprit and the remedy, a documented exit code, and
nobody else disturbed."""
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from main_again import MainAgain
from puppets import CLEAN, MUSTER, PATIENCE_S, PEER_VERSION, PROGRAMS, Job, ask_each, each, every, ok

STEPPER = os.path.join(PROGRAMS, "stepper")
MUSTERS, STEPPERS = MainAgain(MUSTER, PATIENCE_S), MainAgain(STEPPER, PATIENCE_S)  # for what ends before it has begun


def tearDownModule():  # pylint: disable=invalid-name
    for mains in (MUSTERS, STEPPERS):
        done = mains.end()
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stderr


def muster(*args, **variables):
    return MUSTERS.run(args, dict(CLEAN, **variables))


def stepper(**variables):
    return STEPPERS.run(["1"], dict(CLEAN, **variables))


def muster_run(*args, **variables):
    return subprocess.run([MUSTER, "run", *args], env=dict(CLEAN, **variables), text=True, capture_output=True, timeout=PATIENCE_S)


def run(*args, script, **variables):
    """`muster run` of a shell script that can tell workers apart by $RANK, with $STEPPER."""
    return muster_run(*args, "--", "sh", "-c", script, STEPPER=STEPPER, **variables)


class CommandLine(unittest.TestCase):
    def test_no_arguments_is_help(self):
        done = muster()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for text in ("usage: muster", "run", "registry", "resolve"):
            self.assertIn(text, done.stdout)

    def test_an_unknown_flag_or_command_names_itself_and_the_nearest(self):
        for args, culprit, nearest in (
            (["run", "--max-restart", "3", "--", "true"], "--max-restart", "--max-restarts"),
            (["registry", "--lisen", "x"], "--lisen", "--listen"),
            (["resolve", "--jsn"], "--jsn", "--json"),
            (["bench", "allreduce", "--byte", "8"], "--byte", "--bytes"),
            (["regstry"], "regstry", "registry"),
        ):
            done = muster(*args)
            self.assertEqual((done.returncode, done.stdout), (2, ""), args)
            self.assertIn(culprit, done.stderr)
            self.assertIn(nearest, done.stderr)

    def test_every_exit_code_met_here_is_documented(self):
        page = muster("help", "exit-codes").stdout
        for code in ("0", "1", "2", "3", "4", "5", "126", "127", "128+S", "N"):
            self.assertRegex(page, rf"(?m)^ +{re.escape(code)} ", code)

    def test_an_unreadable_program(self):
        with tempfile.TemporaryDirectory() as where:
            path = os.path.join(where, "prog")
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\n")
            os.chmod(path, 0)
            for program, code, remedy in ((path, 126, "chmod +x"), (path + "x", 127, "No such file"),
                                          ("no-such-program", 127, "PATH")):
                done = muster_run("-n", "2", "--", program)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(f"'{program}'", done.stderr)
                self.assertIn(remedy, done.stderr)

    def test_a_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            done = muster("registry", "--listen", address)
        self.assertEqual((done.returncode, done.stdout), (4, ""))
        self.assertIn(address, done.stderr)
        self.assertIn("in use", done.stderr)
        self.assertIn("choose another --listen", done.stderr)

    def test_a_registry_in_use_goes_on(self):
        job = Job()
        self.addCleanup(job.stop)
        done = muster("registry", "--listen", job.address)
        self.assertEqual(done.returncode, 4)
        self.assertIn(job.address, done.stderr)
        members = job.members(2)
        every(members, "begin")

    def test_an_address_that_is_none(self):
        for address in ("nonsense", "127.0.0.1:99999"):
            done = muster("registry", "--listen", address)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(address, done.stderr)


class Place(unittest.TestCase):
    """Which task a process is: it fails before it meets anybody."""

    def test_a_malformed_tf_config(self):
        spec = {"worker": ["a:1", "b:1"]}
        outside = {"cluster": spec, "task": {"type": "worker", "index": 2}}
        for text, *names in (
            ("{'cluster'", "TF_CONFIG", "line 1"),
            (json.dumps({"cluster": {"worker": "a:1"}}), "TF_CONFIG", "worker"),
            (json.dumps(outside), "TF_CONFIG", "'worker'", "2"),
            (json.dumps(dict(outside, task={"type": "ps", "index": 0})), "ps"),
            (json.dumps({"cluster": spec}), "TF_CONFIG", "task"),
        ):
            done = stepper(MUSTER_REGISTRY="127.0.0.1:1", TF_CONFIG=text)
            self.assertEqual(done.returncode, 1, text)
            for name in names:
                self.assertIn(name, done.stderr, text)
        done = muster("resolve", "--json", TF_CONFIG=json.dumps(outside))
        self.assertEqual(done.returncode, 3)
        self.assertIn("task 2", done.stderr)

    def test_a_rank_outside(self):
        done = stepper(MUSTER_REGISTRY="127.0.0.1:1", RANK="4", WORLD_SIZE="4")
        self.assertEqual(done.returncode, 1)
        self.assertIn("RANK=4 is outside WORLD_SIZE=4", done.stderr)

    def test_variables_that_are_no_numbers(self):
        for name, value in (("MUSTER_EVICT_AFTER_S", "soon"), ("MUSTER_EVICT_AFTER_S", "-1"),
                            ("MUSTER_LISTEN", "here.invalid"), ("MUSTER_LISTEN", "127.0.0.1:9-8"), ("MUSTER_LISTEN", "unix:/there"),
                            ("MUSTER_LISTEN", "192.0.2.1"),
                            ("MUSTER_MIN_MEMBERS", "two"), ("MUSTER_MIN_MEMBERS_TIMEOUT_S", "-3"),
                            ("MUSTER_WIRE", "TCP"), ("MUSTER_REJOIN", "maybe"), ("MUSTER_REJOIN", "2"),
                            ("MUSTER_INCARNATION", "xyz"), ("MUSTER_LOG_LEVEL", "loud"), ("MUSTER_KILL", "now")):
            done = stepper(**dict(MUSTER_REGISTRY="127.0.0.1:1", RANK="0", WORLD_SIZE="1", **{name: value}))
            self.assertEqual(done.returncode, 1, name)
            self.assertRegex(done.stderr, rf"{name}={value}|{name}:? must be .*, got \"?{value}")

    def test_a_registry_without_a_place_and_a_place_without_a_registry(self):
        for variables, remedy in (({"MUSTER_REGISTRY": "127.0.0.1:1"}, "muster run"), ({"RANK": "0", "WORLD_SIZE": "2"}, "MUSTER_REGISTRY")):
            done = stepper(**variables)
            self.assertEqual(done.returncode, 1)
            self.assertIn("FAILED_PRECONDITION", done.stderr)
            self.assertIn(remedy, done.stderr)


class WithOthers(unittest.TestCase):
    def setUp(self):
        self.job = Job()
        self.addCleanup(self.job.stop)

    def work_on(self, members):
        every(members, "begin")
        for got in every(members, "all_reduce 1 1"):
            self.assertEqual((got["value"], got["contributors"]), (len(members), len(members)))
        every(members, "commit")

    def test_nobody_serves_the_registry(self):
        lone = self.job.puppet(0, 1, MUSTER_REGISTRY="127.0.0.1:1")
        lone.ok("open 0 1")
        self.assertRegex(lone.ask("begin"), r"^UNAVAILABLE .*127\.0\.0\.1:1 .*muster registry")
        lone.ok("close")
        lone.end()

    def test_another_jobs_name(self):
        members = self.job.members(2)
        every(members, "begin")
        lost = self.job.puppet(1, 2, MUSTER_JOB="other")
        lost.ok("open 0 1")
        self.assertRegex(lost.ask("begin"), r"^DEADLINE_EXCEEDED job other did not begin.*: worker:0;.*MUSTER_JOB")
        lost.ok("close")
        lost.end()
        self.work_on(members)
        self.assertEqual([got["epoch"] for got in every(members, "begin")], [1, 1])

    def test_a_task_that_is_held(self):
        members = self.job.members(2)
        every(members, "begin")
        second = self.job.puppet(1, 2)
        second.ok("open 0 1")
        second.ok("register total 8 1")
        self.assertRegex(second.ask("begin"), r"^DEADLINE_EXCEEDED .*waited for worker:1 at 127.*, which lives and holds this task")
        second.ok("close")
        second.end()
        self.work_on(members)

    def test_another_version_on_the_wire_is_refused(self):
        members = self.job.members(2, MUSTER_INCARNATION="")
        every(members, "begin")
        for member in members:
            with socket.create_connection(("127.0.0.1", listening_port(member.child.pid)), timeout=PATIENCE_S) as wire:
                wire.sendall(b"MSTR" + struct.pack("<III", 9, 1, 0) + b"\7" * 16 + b"default".ljust(64, b"\0"))
                got = b""
                while data := wire.recv(4096):
                    got += data
                self.assertEqual(got[:8], b"MSTR" + struct.pack("<I", PEER_VERSION))  # it says its own, then closes
        self.work_on(members)

    def test_members_of_another_version_do_not_meet(self):
        if shutil.which("etcdctl") is None:
            self.skipTest("etcdctl is not installed (Debian: etcd-client)")
        members = self.job.members(2)
        every(members, "begin")
        self.put(f"/muster/default/members/{'9' * 32}", member_of_version(9, b"\x99" * 16))
        self.work_on(members)
        self.put(f"/muster/fresh/members/{'9' * 32}", member_of_version(9, b"\x99" * 16))
        late = self.job.puppet(1, 2, MUSTER_JOB="fresh")
        late.ok("open")
        self.assertRegex(late.ask("begin"), r"^FAILED_PRECONDITION .*job fresh .*version.*build all of them")
        late.ok("close")
        late.end()

    def put(self, key, value):
        subprocess.run(["etcdctl", "--endpoints", self.job.address, "put", key], input=value, check=True,
                       env=dict(CLEAN, ETCDCTL_API="3"), stdout=subprocess.DEVNULL, timeout=PATIENCE_S)

    def test_another_shape_at_the_start(self):
        for state, culprit in (((("total", 9),), 'state tensor "total" has 9'),
                               ((("sum", 8),), '"sum" here and "total"'),
                               ((("total", 8), ("more", 1)), '"more" is on one side only')):
            members = [self.job.puppet(rank, 3, MUSTER_JOB=culprit.replace(" ", "")[:20]) for rank in range(3)]
            every(members, "open")
            others = [members[0], members[2]]
            every(others, "register total 8 1")
            for name, count in state:
                members[1].ok(f"register {name} {count} 5")
            answers = ask_each(members, lambda _: "begin")
            odd = "^INVALID_ARGUMENT worker:1 differs from 2 of 3 members; compared with the state of worker:0: .*" + re.escape(culprit)
            self.assertRegex(answers[1], odd)
            for line in (answers[0], answers[2]):
                ok(line)
            self.assertRegex(members[1].ask("begin"), odd)
            members[1].ok("close")
            self.work_on(others)

    def test_rank_0_is_the_odd_one(self):
        members = [self.job.puppet(rank, 3) for rank in range(3)]
        every(members, "open")
        members[0].ok("register total 9 1")
        others = members[1:]
        each(others, lambda m: f"register total 8 {m.rank + 1}")
        answers = ask_each(members, lambda _: "begin")
        self.assertRegex(answers[0], "^INVALID_ARGUMENT worker:0 differs from 2 of 3 members; compared with the state of "
                         'worker:1: state tensor "total" has 9 elements .* 8 ')
        for line in answers[1:]:
            ok(line)
        self.assertEqual([got["value"] for got in every(others, "get total")], [2, 2])
        members[0].ok("close")
        self.work_on(others)

    def test_of_two_that_differ_the_one_that_fails_names_both(self):
        members = [self.job.puppet(rank, 2) for rank in range(2)]
        every(members, "open")
        each(members, lambda m: f"register total {8 + m.rank} 1")
        answers = ask_each(members, lambda _: "begin")
        ok(answers[0])
        self.assertRegex(answers[1], "^INVALID_ARGUMENT worker:1 differs from 1 of 2 members; compared with the state of "
                         'worker:0: state tensor "total" has 9 elements .* 8 ')
        members[1].ok("close")
        self.work_on(members[:1])

    def test_another_shape_of_a_joiner(self):
        members = self.job.members(3)
        self.work_on(members)
        members[2].kill()
        others = members[:2]
        self.work_on(others)
        joiner = self.job.puppet(2, 3)
        joiner.ok("open")
        joiner.ok("register total 9 5")
        joiner.tell("begin")
        for _ in range(10000):
            every(others, "begin")
            if joiner.has_answered():
                break
            every(others, "all_reduce 1 1")
            every(others, "commit")
        self.assertRegex(joiner.hear(), r'^INVALID_ARGUMENT worker:[01] refuses: state tensor "total" has 8 .* 9 ')
        joiner.ok("close")
        joiner.end()
        for got in every(others, "all_reduce 1 1"):
            self.assertEqual(got["contributors"], 2)
        every(others, "commit")
        self.work_on(others)

    def test_another_operation_is_told_to_all_at_once(self):
        calls = ("all_reduce 100 1 sum", "all_reduce 101 1 sum", "all_reduce 100 1 max", "barrier", "broadcast 100 1 0")
        shown = {"all_reduce 100 1 sum": "all_reduce(sum, f64 x 100)", "all_reduce 101 1 sum": "x 101)",
                 "all_reduce 100 1 max": "all_reduce(max", "barrier": "barrier()", "broadcast 100 1 0": "broadcast(f64"}
        members = self.job.members(3)
        every(members, "begin")
        for other in calls[1:]:
            answers = ask_each(members, lambda m: other if m.rank == 1 else calls[0])  # pylint: disable=cell-var-from-loop
            for rank, line in enumerate(answers):
                self.assertRegex(line, "^INVALID_ARGUMENT .*has called")
                self.assertIn(shown[other], line)
                self.assertIn(shown[calls[0]], line)
                self.assertIn("(worker:1)" if rank != 1 else "(worker:", line)
        for got in every(members, "all_reduce 1 1"):
            self.assertEqual((got["value"], got["contributors"]), (3, 3))
        large = ask_each(members, lambda m: f"all_reduce {100000 + m.rank % 2} 1")
        for line in large:
            self.assertRegex(line, "^INVALID_ARGUMENT .*x 10000[01]\\).*x 10000[01]\\)")
        every(members, "all_reduce 100000 1")


def listening_port(pid):
    """The only TCP port on which the process listens."""
    sockets = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            sockets.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except FileNotFoundError:
            pass
    with open(f"/proc/{pid}/net/tcp", encoding="utf-8") as file:
        ports = [int(words[1].split(":")[1], 16) for words in map(str.split, list(file)[1:])
                 if words[3] == "0A" and f"socket:[{words[9]}]" in sockets]
    assert len(ports) == 1, ports
    return ports[0]


def member_of_version(version, incarnation):
    """The registry's value of a member that speaks `version` (proto/membership.proto, Member)."""
    return b"\x0a\x10" + incarnation + b"\x12\x06worker" + b"\x22\x0b127.0.0.1:1" + b"\x40" + bytes([version])


class WholeJobs(unittest.TestCase):
    def test_a_worker_of_another_shape_fails_alone(self):
        done = run("-n", "3", "--max-restarts", "0", script='exec $STEPPER 200 $((RANK == 1 ? 9 : 8))')
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r'\[worker:1\] stepper: INVALID_ARGUMENT: .* of worker:0: state tensor "total" has 9')
        self.assertEqual(sorted(done.stdout.splitlines()), ["[worker:0] total 200", "[worker:2] total 200"])

    def test_a_returning_worker_of_another_shape_fails_alone(self):
        with tempfile.TemporaryDirectory() as where:
            done = run("-n", "3", "--max-restarts", "1", "--kill", "worker:2@step=5", STEPPER_HOLD=f"{where}/go", script=(
                '[ $RANK.$MUSTER_RESTART_COUNT = 2.1 ] || exec $STEPPER 3000 8; $STEPPER 3000 9; code=$?; : > $STEPPER_HOLD; '
                'exit $code'))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r'\[worker:2\] stepper: INVALID_ARGUMENT: worker:[01] refuses: state tensor "total" has 8 .* 9 ')
        self.assertEqual(sorted(done.stdout.splitlines()), ["[worker:0] total 3000", "[worker:1] total 3000"])

    def test_another_operation_ends_the_job_with_both_names(self):
        """Worker 1 comes last to the operation: a worker that came after the others have ended would go on without them."""
        for _ in range(5):
            done = run("-n", "3", "--max-restarts", "0", STEPPER_HURRY="never", STEPPER_LINGER_MS="500", script=(
                '[ $RANK = 1 ] || unset STEPPER_HURRY; exec $STEPPER 50 8 total $((RANK == 1 ? 3 : 4))'))
            self.assertEqual(done.returncode, 1)
            if "1 of 3 tasks took part" not in done.stderr:  # all had come in time
                break
        for rank in range(3):
            self.assertRegex(done.stderr, rf"\[worker:{rank}\] stepper: INVALID_ARGUMENT: .*has called")
        self.assertRegex(done.stderr, r"\[worker:1\] .*rank [02] \(worker:[02]\) has called .*x 4\), this rank .*x 3\)")


if __name__ == "__main__":
    unittest.main()
