#!/usr/bin/env python3
"""`muster status` and `muster top`: the jobs of a registry, or of this host, once and live."""
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
import cases
from puppets import CLEAN, MUSTER, PATIENCE_S
from watched_job import Watched, registry, until


def muster(*args, **variables):
    return subprocess.run([MUSTER, *args], text=True, capture_output=True, env=dict(CLEAN, **variables), timeout=PATIENCE_S, check=False)


def jobs(*args, **variables):
    done = muster("status", "--json", *args, **variables)
    assert done.returncode == 0, done
    return {job["job"]: job for job in json.loads(done.stdout)["jobs"]}


def local_job(name, folder):
    """The job of that name on this host, where others may run, too; None: it is not found."""
    done = muster("status", "--json", "--job", name, XDG_RUNTIME_DIR=folder)
    found = json.loads(done.stdout)["jobs"] if done.returncode == 0 else []
    assert len(found) <= 1, done
    return found[0] if found else None


class Status(unittest.TestCase):
    def test_members_steps_and_who_waits_for_whom(self):
        address = registry(self)
        one = Watched(self, "-n", "3", "--job", "one", "--registry", address)
        two = Watched(self, "-n", "1", "--job", "two", "--registry", address)
        until(self, "steps", lambda: one.json()["step"] > 5 and two.json()["step"] > 5)
        one.stall(True)
        until(self, "a wait", lambda: [m["waits_for"] for m in one.json()["members"]] == ["worker:1", None, "worker:1"])
        seen = jobs("--registry", address)
        self.assertEqual(sorted(seen), ["one", "two"])
        self.assertEqual(seen["one"]["view"], 1)
        until(self, "the same step", lambda: jobs("--registry", address)["one"]["step"] == one.json()["step"])
        self.assertEqual([(m["task"], m["rank"], m["state"], m["waits_for"]) for m in seen["one"]["members"]],
                         [("worker:0", 0, "waiting", "worker:1"), ("worker:1", 1, "computing", None),
                          ("worker:2", 2, "waiting", "worker:1")])
        self.assertEqual(list(jobs("--registry", address, "--job", "two")), ["two"])
        self.assertEqual(list(jobs("--job", "two", MUSTER_REGISTRY=address)), ["two"])
        text = muster("status", "--registry", address, "--job", "one").stdout
        self.assertRegex(text, r"one: running, step \d+, view 1 with 3 members, http://127\.0\.0\.1:\d+\n")
        self.assertRegex(text, r"  worker:0 +0 +\S+ +waiting +worker:1 +\d+ +0\n")
        self.assertRegex(muster("status", "--registry", address, "--job", "two").stdout,
                         r"two: running, step \d+, view 1 with 1 member, http://127\.0\.0\.1:\d+\n")
        one.stall(False)
        self.assertEqual([one.end(), two.end()], [0, 0])
        until(self, "both to be gone", lambda: all(job["state"] == "ended" for job in jobs("--registry", address).values()))

    def test_steps_are_those_of_now(self):
        address = registry(self)
        job = Watched(self, "-n", "2", "--job", "one", "--registry", address)
        first = until(self, "a step", lambda: jobs("--registry", address).get("one", {}).get("step"))
        until(self, "later steps", lambda: job.json()["step"] >= first + 20)
        self.assertGreaterEqual(jobs("--registry", address)["one"]["step"], first + 10)
        self.assertEqual(job.end(), 0)

    def test_jobs_of_this_host_are_found_without_a_registry(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIsNone(local_job("here", folder))
            job = Watched(self, "-n", "2", "--job", "here", XDG_RUNTIME_DIR=folder)
            until(self, "a step", lambda: job.json()["step"] > 0)
            self.assertEqual(len(local_job("here", folder)["members"]), 2)
            os.chmod(os.path.join(folder, "muster"), 0o777)
            self.assertIsNone(local_job("here", folder), "others could have written there")
            os.chmod(os.path.join(folder, "muster"), 0o700)
            os.rename(os.path.join(folder, "muster"), os.path.join(folder, "elsewhere"))
            os.symlink("elsewhere", os.path.join(folder, "muster"))
            self.assertIsNone(local_job("here", folder), "a link leads to what somebody else chose")
            os.unlink(os.path.join(folder, "muster"))
            os.rename(os.path.join(folder, "elsewhere"), os.path.join(folder, "muster"))
            job.child.kill()
            job.child.wait()
            until(self, "the dead launcher to be forgotten", lambda: not local_job("here", folder))
            self.assertEqual(os.listdir(os.path.join(folder, "muster")), [])

    def test_a_job_that_cron_has_started_is_found_by_a_login_shell(self):
        name = f"cron-{os.getpid()}"
        with tempfile.TemporaryDirectory() as folder:
            job = Watched(self, "-n", "1", "--job", name, XDG_RUNTIME_DIR="")
            until(self, "a step", lambda: job.json()["step"] > 0)
            self.assertEqual(len(local_job(name, folder)["members"]), 1)
            self.assertEqual(len(local_job(name, "")["members"]), 1)
            self.assertEqual(job.end(), 0)
            self.assertIsNone(local_job(name, folder))

    def test_a_job_that_admits_only_itself_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            job = Watched(self, "-n", "1", "--tls", "auto", "--job", "alone", XDG_RUNTIME_DIR=folder)
            done = muster("status", "--job", "alone", XDG_RUNTIME_DIR=folder)
            self.assertEqual((done.returncode, done.stdout), (5, ""), done)
            self.assertIn(f"(pid {job.child.pid})", done.stderr)
            self.assertIn("--status", done.stderr)
            self.assertEqual(job.end(), 0)

    def test_what_cannot_be_shown_is_an_error(self):
        address = registry(self)
        for code, words, args in ((3, "no job nowhere at", ("--registry", address, "--job", "nowhere")),
                                  (4, "the registry at 127.0.0.1:1 does not answer (Connection refused)", ("--registry", "127.0.0.1:1")),
                                  (2, "--registry", ("--registry", "a b"))):
            for command in ("status", "top"):
                done = muster(command, *args)
                self.assertEqual((done.returncode, done.stdout), (code, ""), done)
                self.assertIn(words, done.stderr)

    def test_a_circle_of_many_waits_is_shown_at_once(self):
        count, address = 4000, registry(self)
        members = [{"task": f"worker:{rank}", "rank": rank, "host": "h", "pid": 1, "state": "waiting", "waits_for": f"worker:{(rank + 1) % count}",
                    "op": "all_reduce #1", "step": 1, "restarts": 0} for rank in range(count)]
        members[0]["waits_for"] = "worker:2"  # it stands before the circle of all others, and behind nobody's wait
        members[-1]["waits_for"] = "worker:1"
        members.append(dict(members[0], task="ps:0", waits_for="ps:1"))
        members.append(dict(members[0], task="ps:1", waits_for="ps:2"))
        self.put(address, "circle", {"job": "circle", "state": "running", "members": members})
        seen = {m["task"]: m["waits_for"] for m in jobs("--registry", address)["circle"]["members"]}
        self.assertEqual([seen[task] for task in ("worker:0", "worker:1", f"worker:{count - 1}", "ps:0", "ps:1")],
                         ["worker:2", "worker:2", "worker:1", "ps:2", "ps:2"])

    def put(self, address, job, record):
        if not has("etcdctl"):
            self.skipTest("etcdctl is not installed")
        subprocess.run(["etcdctl", "--endpoints", address, "put", f"/muster//status/{job}/0"], input=json.dumps(record), text=True,
                       env=dict(CLEAN, ETCDCTL_API="3"), capture_output=True, check=True)

    def test_names_do_not_move_the_cursor(self):
        address = registry(self)
        record = {"job": "x", "state": "running", "step": 1, "view": 1, "members_in_view": 1, "values": {"\x1b[2J": 1},
                  "members": [{"task": "\x1b]0;title\x07", "rank": 0, "host": "h\u009b1m", "state": "computing", "waits_for": None}]}
        self.put(address, "x", record)
        text = muster("status", "--registry", address).stdout
        self.assertIn("?]0;title?", text)
        self.assertNotRegex(text, "[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def has(program):
    return any(os.access(os.path.join(folder, program), os.X_OK) for folder in os.environ["PATH"].split(":"))


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, test, *args, rows=24, columns=100):
        self.test, self.seen = test, ""
        self.screen, inside = pty.openpty()
        test.addCleanup(os.close, self.screen)
        termios.tcsetwinsize(inside, (rows, columns))
        self.before = termios.tcgetattr(inside)
        self.child = subprocess.Popen([MUSTER, *args], env=CLEAN, stdin=inside, stdout=inside, stderr=inside,
                                      start_new_session=True, preexec_fn=lambda: os.close(self.screen))
        test.addCleanup(self.child.wait)
        test.addCleanup(self.child.kill)
        self.inside = inside
        test.addCleanup(os.close, inside)

    def read(self):
        while select.select([self.screen], [], [], 0.02)[0]:
            self.seen += os.read(self.screen, 65536).decode()
        return self.seen

    def page(self):
        """What was drawn last."""
        whole = [page.split("\x1b[J")[0] for page in self.read().split("\x1b[H")[1:] if "\x1b[J" in page]
        return re.sub(r"\x1b\[K", "", whole[-1]) if whole else ""

    def is_restored(self):
        return self.seen.endswith("\x1b[?25h\x1b[?1049l") and termios.tcgetattr(self.inside) == self.before


class Forwarder:
    """A port in front of a registry; `seen` is what one client has sent through it, whole once `child` has ended."""

    def __init__(self, test, address):
        host, port = address.rsplit(":", 1)
        self.seen, self.onward = b"", (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0))
        test.addCleanup(self.listener.close)
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.child = threading.Thread(target=self.serve, daemon=True)
        self.child.start()

    def serve(self):
        client, _ = self.listener.accept()
        with client, socket.create_connection(self.onward) as server:
            answers = threading.Thread(target=self.copy, args=(server, client), daemon=True)
            answers.start()
            self.copy(client, server, is_kept=True)
            answers.join()

    def copy(self, source, sink, is_kept=False):
        try:
            while data := source.recv(65536):
                self.seen += data if is_kept else b""
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # one side is gone


class Top(unittest.TestCase):
    def setUp(self):
        self.address = registry(self)
        self.job = Watched(self, "-n", "2", "--job", "live", "--registry", self.address)
        until(self, "a step", lambda: self.job.json()["step"] > 0)

    def top(self, **size):
        return Terminal(self, "top", "--registry", self.address, "--interval", "200ms", **size)

    def test_it_is_drawn_in_place_and_ends_by_q(self):
        top = self.top()
        step = lambda: int((re.search(r"live: running, step (\d+),", top.page()) or [0, 0])[1])
        first = until(self, "a page", step)
        until(self, "later steps", lambda: step() > first)
        self.assertIn("worker:1", top.page())
        self.assertTrue(top.seen.startswith("\x1b[?1049h"))
        os.write(top.screen, b"q")
        self.assertEqual(top.child.wait(timeout=PATIENCE_S), 0)
        top.read()
        self.assertTrue(top.is_restored(), repr(top.seen[-40:]))

    def test_control_c_and_sigterm_restore_the_terminal(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            top = self.top()
            until(self, "a page", lambda top=top: "worker:1" in top.page())
            top.child.send_signal(number)
            self.assertEqual(top.child.wait(timeout=PATIENCE_S), 0)
            top.read()
            self.assertTrue(top.is_restored(), repr(top.seen[-40:]))

    def test_it_fits_the_terminal_whose_size_changes(self):
        top = self.top(rows=6, columns=30)
        until(self, "a page", lambda: "and" in top.page() or "worker:0" in top.page())
        for rows, columns in ((6, 30), (20, 60)):
            termios.tcsetwinsize(top.inside, (rows, columns))
            top.child.send_signal(signal.SIGWINCH)
            until(self, f"a page of {columns} columns",
                  lambda: max(map(len, top.page().split("\r\n"))) > columns - 12)
            lines = top.page().split("\r\n")
            self.assertLessEqual(len(lines), rows)
            self.assertLessEqual(max(map(len, lines)), columns)

    def test_a_terminal_that_does_not_know_its_size_is_taken_for_24_rows_of_80(self):
        top = self.top(rows=0, columns=0)
        until(self, "a page", lambda: "worker:1" in top.page())
        self.assertLessEqual(max(map(len, top.page().split("\r\n"))), 80)

    def test_jobs_come_and_go(self):
        top = self.top()
        until(self, "the first job", lambda: "live: running" in top.page())
        second = Watched(self, "-n", "1", "--job", "second", "--registry", self.address)
        until(self, "the second job", lambda: "second: running" in top.page())
        self.assertEqual(second.end(), 0)
        until(self, "its end", lambda: "second: ended" in top.page())

    def test_the_keys_of_all_jobs_are_read_once_and_watched_then(self):
        wire = Forwarder(self, self.address)
        done = muster("top", "--registry", wire.address, "--json", "--count", "6", "--interval", "0.2")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        self.assertEqual([[job["job"] for job in json.loads(line)["jobs"]] for line in done.stdout.splitlines()], [["live"]] * 6)
        wire.child.join()
        asked = wire.seen.count(b"\x0a\x08/muster/\x12\x08/muster0")
        self.assertEqual(asked, 2, "a range of all keys, and a watch from there")

    def test_json_is_a_line_per_look(self):
        for count in (3, 40):  # on a busy machine the job may stand still in the first time
            done = muster("top", "--registry", self.address, "--json", "--interval", "500ms", "--count", str(count))
            steps = [json.loads(line)["jobs"][0]["step"] for line in done.stdout.splitlines()]
            self.assertEqual((done.returncode, len(steps)), (0, count))
            if steps[0] < steps[-1]:
                break
        self.assertLess(steps[0], steps[-1])
        plain = muster("top", "--registry", self.address, "--count", "2", "--interval", "200ms")
        self.assertEqual(plain.stdout.count("live: running"), 2)
        self.assertNotIn("\x1b", plain.stdout)


if __name__ == "__main__":
    cases.main()
