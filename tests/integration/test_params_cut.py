#!/usr/bin/env python3
"""`muster params cut`: all tables at one point of every source's pushes, while they go on; `muster params serve --restore` on any number of
servers."""
import errno
import fcntl
import glob
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()

import cases
from params_cluster import MUSTER, PATIENCE_S, ParamsCluster, children_of

PULSE = os.path.join(os.environ["MUSTER_BINARY_DIR"], "tests", "programs", "params_pulse")
FOREVER = 10**9


class Cut(ParamsCluster):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_tool(self, *words):
        return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def cut(self, address, *words):
        return self.run_tool(MUSTER, "params", "cut", "--server", address, "--json", *words, self.folder)

    def assert_cut(self, address, *words):
        done = self.cut(address, *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def pulse(self, address, job, element, pushes=FOREVER, *words):
        process = self.start(PULSE, address, job, str(element), str(pushes), *words)
        self.assertEqual(process.stdout.readline(), "begun\n")
        return process

    def counts(self, address, job):
        """How many pushes of each source the rows have: the same in all rows."""
        done = self.run_tool(PULSE, address, job, "0", "0")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [int(word) for word in done.stdout.split()[1:]]

    def restored(self, servers, job, *words):
        """Servers that begin with the cut; the address of one."""
        if servers == 1:
            return self.serve("--log-level", "error", "--job", job, "--restore", self.folder, *words)[1]
        started = [self.serve("--log-level", "error", "--registry", self.registry, "--job", job, "--expect", str(servers), "--restore", self.folder,
                              *words) for _ in range(servers)]
        return started[0][1]

    def test_a_cut_amid_pushes_has_each_push_in_all_rows_or_in_none(self):
        for replicas in ("1", "2"):
            _, addresses = self.servers(3, "--replicas", replicas)
            pulses = [self.pulse(addresses, "j", i) for i in range(3)]
            for _ in range(3):
                made = self.assert_cut(addresses, "--job", "j")
                self.assertEqual((made["rows"], made["tables"], made["shards"]), (256, 1, 256))
                self.assertIn(made["servers"], (2, 3) if replicas == "2" else (3,))  # one that got no processor for 3 s is left out
            for pulse in pulses:
                self.assertIsNone(pulse.poll())
                pulse.kill()
            before = None
            for servers, words in ((1, ()), (1, ("--shards", "16")), (3, ()), (5, ("--replicas", "2"))):
                job = f"r{replicas}-{servers}{len(words)}"
                address = self.restored(servers, job, *words)
                counts = self.counts(address, job)
                self.assertTrue(all(counts[:3]) and counts[3] == 0, counts)
                self.assertIn(before, (None, counts))
                before = counts
                done = self.run_tool(PULSE, address, job, "1", "5")  # a source goes on behind what the cut has of it
                self.assertEqual((done.returncode, done.stderr, done.stdout), (0, "", "begun\ndone\n"))
                self.assertEqual(self.counts(address, job), [counts[0], counts[1] + 5, counts[2], 0])
            self.registry = self.start_registry()

    def test_the_files_of_older_cuts_go(self):
        _, address = self.serve("--log-level", "error")
        self.assertEqual(self.pulse(address, "", 0, 1).wait(PATIENCE_S), 0)
        first, same = self.assert_cut(address), self.assert_cut(address)
        self.assertEqual((first["shards_saved"], same["shards_saved"]), (256, 0))
        self.assertEqual(self.names(), [f"cut-{first['cut']}-shard-{i:04}" for i in range(256)] + ["manifest"])
        self.assertEqual(self.pulse(address, "", 0, 1).wait(PATIENCE_S), 0)
        last = self.assert_cut(address)
        self.assertLess(first["cut"], last["cut"])
        self.assertEqual(len(self.names()), 257)
        self.assertEqual(len([name for name in self.names() if f"-{last['cut']}-" in name]), last["shards_saved"])

    def test_files_stay_while_another_cut_is_about_to_name_them(self):
        _, address = self.serve("--log-level", "error", "--shards", "16")
        self.assertEqual(self.pulse(address, "", 0, 1).wait(PATIENCE_S), 0)
        self.assert_cut(address)
        first = self.names()
        with open(os.path.join(self.folder, "lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            self.assertEqual(self.pulse(address, "", 0, 1).wait(PATIENCE_S), 0)
            last = self.assert_cut(address)
            self.assertLessEqual(set(first), set(self.names()))
        self.assert_cut(address)
        self.assertEqual(len(self.names()), 17)  # the lock is gone, too
        self.assertLess(len(self.names_of(first[0].split("-")[1])), 16)
        self.assertTrue(self.names_of(last["cut"]))

    def names_of(self, cut):
        return [name for name in self.names() if name.startswith(f"cut-{cut}-")]

    def names(self):
        return sorted(os.path.basename(path) for path in glob.glob(os.path.join(self.folder, "*")))

    def manifests(self):
        return [name for name in self.names() if name.startswith("manifest-")]

    def test_a_server_cuts_again_and_again_and_keeps_the_newest(self):
        keeper, address = self.serve("--log-level", "error", "--shards", "16", "--cut-dir", self.folder, "--cut-every", "50ms", "--cut-keep", "2")
        pulse = self.pulse(address, "", 0)
        self.wait_until(lambda: len(self.manifests()) == 2, "there are no two cuts")
        first = self.manifests()
        os.kill(children_of(keeper.pid)[1], signal.SIGKILL)  # the first child makes the cuts
        self.wait_until(lambda: self.manifests() and self.manifests()[0] > first[1], "the cuts do not go on")
        self.assertLessEqual(len(self.manifests()), 3)  # the third is just being made
        first = self.manifests()
        os.kill(children_of(keeper.pid)[0], signal.SIGKILL)
        self.wait_until(lambda: self.manifests() and self.manifests()[0] > first[-1], "the cuts do not go on without their process")
        pulse.kill()
        keeper.terminate()
        keeper.wait(PATIENCE_S)
        self.assertTrue(self.counts(self.restored(1, "k"), "k")[0])
        older = self.manifests()[0]
        os.replace(os.path.join(self.folder, older), os.path.join(self.folder, "manifest"))
        self.assertTrue(self.counts(self.restored(1, "k"), "k")[0])

    def assert_stops(self, cutting):
        """The command ends with 0 and says nothing: a cut that it gives up counts as no failure."""
        cutting.terminate()
        out, err = cutting.communicate(timeout=PATIENCE_S)
        self.assertEqual((cutting.returncode, err), (0, ""))
        return out

    def test_sigterm_ends_repeated_cuts_with_0(self):
        _, address, log = self.logged_server("--expect", "1", "--shards", "4")
        words = (MUSTER, "params", "cut", "--job", "j", "--every", "20ms")
        pulse = self.pulse(address, "j", 0)
        cutting = self.start(*words, "--every", "500ms", "--server", address, self.folder)  # no other cut can fail before SIGTERM comes
        self.assertIn("saved cut ", cutting.stdout.readline())
        self.assert_stops(cutting)
        pulse.kill()
        cutting = self.start(*words, "--server", address, self.folder)
        self.wait_until(lambda: [line for line in self.lines_of(log, "params_cut_ended") if "may come back" in line], "the cut is not begun again")
        self.assertEqual(self.assert_stops(cutting), "")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            silent.settimeout(PATIENCE_S)
            cutting = self.start(*words, "--server", f"127.0.0.1:{silent.getsockname()[1]}", self.folder)
            with silent.accept()[0]:
                self.assertEqual(self.assert_stops(cutting), "")
        cutting = self.start(*words, "--server", "127.0.0.1:1", "--timeout", "0.2", self.folder)
        self.assertIn("127.0.0.1:1", cutting.stderr.readline())  # the last cut that came to an end has failed
        cutting.terminate()
        cutting.communicate(timeout=PATIENCE_S)
        self.assertEqual(cutting.returncode, 4)

    def test_a_cut_says_which_server_it_waits_for(self):
        cutting = self.start(MUSTER, "params", "cut", "--server", "127.0.0.1:1", self.folder)
        self.assertRegex(cutting.stderr.readline(), "waits_for_params_server server=127.0.0.1:1 reason=.*Connection refused")
        cutting.kill()

    def several(self, count, job, *words):
        """Seats of one command; the command and all addresses."""
        return self.serve("--log-level", "error", "--registry", self.registry, "--job", job, "--servers", str(count), *words)

    def digest(self, addresses):
        done = self.run_tool(MUSTER, "params", "inspect", "--server", addresses, "--digest", "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [(table["name"], table["rows"], table["digest"]) for table in json.loads(done.stdout)["tables"]]

    def end(self, command, *others):
        """All servers of the job are asked to end before any has."""
        for process in (command, *others):
            process.terminate()
        for process in (command, *others):
            self.assertEqual(process.wait(PATIENCE_S), 0)

    def test_seats_of_one_command_are_cut_and_restored_on_any_number_of_them(self):
        command, addresses = self.several(3, "j")
        for i in range(2):
            self.assertEqual(self.pulse(addresses, "j", i, 5).wait(PATIENCE_S), 0)
        self.assertEqual(self.assert_cut(addresses, "--job", "j")["servers"], 3)
        before = self.digest(addresses)
        self.assertEqual(before[0][:2], ("pulse", 256))
        self.end(command)
        for servers, words in ((1, ()), (3, ()), (3, ("--replicas", "2")), (8, ())):
            job = f"r{servers}{len(words)}"
            command, addresses = self.several(servers, job, "--restore", self.folder, *words)
            self.assertEqual(len(addresses.split(",")), servers)
            self.assertEqual(self.counts(addresses, job), [5, 5, 0, 0])
            self.assertEqual(self.digest(addresses), before)
            if servers == 3 and not words:  # the seat has its rows, and another keeper goes on with them
                victim = [pid for pid in children_of(command.pid) if pid != command.pid][0]
                os.kill(victim, signal.SIGKILL)
                self.wait_until(lambda: victim not in children_of(command.pid) and len(children_of(command.pid)) == 3, "no keeper comes")
                self.assertEqual(self.digest(addresses), before)
            self.end(command)

    def test_seats_of_one_command_cut_again_and_again(self):
        command, addresses = self.several(2, "j", "--shards", "16", "--cut-dir", self.folder, "--cut-every", "50ms", "--cut-keep", "2")
        pulse = self.pulse(addresses, "j", 0)
        self.wait_until(lambda: len(self.manifests()) == 2, "there are no two cuts")
        first = self.manifests()
        os.kill(children_of(children_of(command.pid)[1])[0], signal.SIGKILL)  # the command's first child makes the cuts
        self.wait_until(lambda: self.manifests() and self.manifests()[0] > first[1], "the cuts do not go on")
        first, killed = self.manifests(), children_of(command.pid)[0]
        os.kill(killed, signal.SIGTERM)  # the command goes on, and so do its cuts
        self.wait_until(lambda: self.manifests() and self.manifests()[0] > first[-1], "the cuts do not go on without their process")
        cutter = children_of(command.pid)[-1]
        self.assertNotEqual(cutter, killed)
        self.assertEqual(pulse.poll(), None)
        pulse.kill()
        self.end(command)
        self.wait_until(lambda: not os.path.exists(f"/proc/{cutter}"), "the cuts do not end with the command")
        command, addresses = self.several(3, "k", "--restore", self.folder)
        self.assertTrue(self.counts(addresses, "k")[0])

    def test_a_server_that_is_killed_while_it_restores_leaves_that_to_the_next_one(self):
        _, address = self.serve("--log-level", "error", "--shards", "16")
        self.assertEqual(self.pulse(address, "", 0, 3).wait(PATIENCE_S), 0)
        made = self.assert_cut(address)
        before = self.digest(address)
        path = os.path.join(self.folder, f"cut-{made['cut']}-shard-0009")
        for words in (("--no-spare",), ()):
            os.rename(path, path + ".kept")
            os.mkfifo(path)
            keeper = self.start(MUSTER, "params", "serve", "--listen", "127.0.0.1:0", "--memory-max", self.memory, "--shards", "16", "--log-level", "error",
                                "--restore", self.folder, *words)
            with open(path + ".kept", "rb") as kept, open(path, "wb") as file:  # it checks all files, then reads them again
                file.write(kept.read())
            self.wait_until(lambda: not self.readers_of(path, keeper.pid), "the file is not read")
            pipe = self.pipe_open(path)
            self.wait_until(lambda: self.readers_of(path, keeper.pid), "the file is not read again")
            victim = self.readers_of(path, keeper.pid)[0]
            os.rename(path + ".kept", path)  # in the pipe's place, before the next process looks for it
            os.kill(victim, signal.SIGKILL)
            os.close(pipe)
            address = keeper.stdout.readline().split()[1]
            self.assertEqual(self.digest(address), before)
            self.assertEqual(self.counts(address, ""), [3, 0, 0, 0])
            keeper.terminate()
            self.assertEqual(keeper.wait(PATIENCE_S), 0)

    def readers_of(self, path, keeper):
        """The children of the keeper that have the file open."""
        found = []
        for child in children_of(keeper):
            folder = f"/proc/{child}/fd"
            try:
                found += [child for fd in os.listdir(folder) if os.readlink(os.path.join(folder, fd)) == path]
            except OSError:
                pass  # it has gone, or closed the file
        return found

    def pipe_open(self, path):
        """The end to write to, once somebody opens the other one."""
        opened = []

        def is_opened():
            try:
                opened.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            except OSError as error:
                self.assertEqual(error.errno, errno.ENXIO)
            return opened

        self.wait_until(is_opened, f"nobody reads {path}")
        return opened[0]

    def clock_high(self, address):
        done = self.run_tool(MUSTER, "params", "inspect", "--server", address, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)["sources"]["clock_high"]

    def test_a_cut_at_a_clock_has_the_steps_before_it_of_all_workers(self):
        for count, replicas in ((1, "1"), (3, "2")):
            _, addresses, logs = zip(*[self.logged_server("--expect", str(count), "--replicas", replicas) for _ in range(count)])
            addresses = ",".join(addresses)
            pulses = [self.pulse(addresses, "j", i, FOREVER, "2") for i in range(2)]
            for pulse in pulses:
                pulse.send_signal(signal.SIGSTOP)
            clock = (self.clock_high(addresses) or 0) + 100
            cutting = self.start(MUSTER, "params", "cut", "--server", addresses, "--job", "j", "--clock", str(clock), "--json", self.folder)
            for log in logs:
                self.wait_until(lambda log=log: self.lines_of(log, "params_cut_waits"), "the cut does not wait")
            for pulse in pulses:
                pulse.send_signal(signal.SIGCONT)
            out, err = cutting.communicate(timeout=PATIENCE_S)
            self.assertEqual((cutting.returncode, err), (0, ""))
            self.assertEqual(json.loads(out)["clock"], clock)
            self.wait_until(lambda: self.clock_high(addresses) > clock, "they do not go on")
            done = self.cut(addresses, "--job", "j", "--clock", str(clock))
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr, f"already: name a later clock than {clock}")
            for pulse in pulses:
                self.assertIsNone(pulse.poll())
                pulse.kill()
            job = f"r{count}"
            self.assertEqual(self.counts(self.restored(count, job), job), [clock, clock, 0, 0])
            self.registry = self.start_registry()

    def test_a_client_that_stands_still_ends_the_cut_by_name_and_holds_nobody_up(self):
        _, address = self.serve("--log-level", "error")
        still, other = self.pulse(address, "", 0), self.pulse(address, "", 1)
        still.send_signal(signal.SIGSTOP)
        done = self.cut(address, "--timeout", "20")
        self.assertEqual((done.returncode, done.stdout), (4, ""))
        self.assertRegex(done.stderr, r"the source pulse:0 \([0-9a-f]{32}\) has not marked within a second: is its loop turning\? \(1 of")
        before = self.counts(address, "")[1]
        self.wait_until(lambda: self.counts(address, "")[1] > before, "the other one stands still, too")
        self.assertEqual(os.listdir(self.folder), [])
        still.send_signal(signal.SIGCONT)
        self.assert_cut(address)
        self.assertIsNone(other.poll())

    def test_servers_that_die_amid_cuts_leave_a_whole_one(self):
        keepers, addresses = self.servers(2)
        pulses = [self.pulse(addresses, "j", i) for i in range(2)]
        self.assert_cut(addresses, "--job", "j")
        for i in range(6):
            cutting = self.start(MUSTER, "params", "cut", "--server", addresses, "--job", "j", "--json", self.folder)
            os.kill(children_of(keepers[i % 2].pid)[0], signal.SIGKILL)
            out, err = cutting.communicate(timeout=PATIENCE_S)
            self.assertEqual((cutting.returncode, bool(out), bool(err)), (cutting.returncode, cutting.returncode == 0, cutting.returncode != 0))
        for pulse in pulses:
            self.assertIsNone(pulse.poll(), pulse.stderr.read() if pulse.poll() is not None else "")
        self.assertTrue(all(self.counts(self.restored(1, "k"), "k")[:2]))

    def test_a_job_is_restored_under_its_own_name_by_force_alone(self):
        keepers, addresses = self.servers(2, "--drain-timeout", "0.2")
        pulse = self.pulse(addresses, "j", 0, 3)
        self.assertEqual(pulse.wait(PATIENCE_S), 0)
        self.assert_cut(addresses, "--job", "j")
        words = ("params", "serve", "--listen", "127.0.0.1:0", "--log-level", "error", "--memory-max", "64M", "--registry", self.registry, "--job", "j",
                 "--expect", "2", "--restore", self.folder)
        done = self.run_tool(MUSTER, *words, "--force-new")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("servers of the job are alive, or were", done.stderr)
        for keeper in keepers:
            keeper.terminate()  # their keys go at once, those of killed ones with their leases
            keeper.wait(PATIENCE_S)
        done = self.run_tool(MUSTER, *words)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("give --force-new, which gives their rows up", done.stderr)
        address = self.restored(2, "j", "--force-new")
        self.assertEqual(self.counts(address, "j")[0], 3)

    def test_a_damaged_cut_is_refused_by_the_name_of_its_file(self):
        _, address = self.serve("--log-level", "error")
        self.assertEqual(self.pulse(address, "", 0, 1).wait(PATIENCE_S), 0)
        made = self.assert_cut(address)
        shard = os.path.join(self.folder, f"cut-{made['cut']}-shard-0007")
        with open(shard, "rb") as file:
            whole = file.read()
        manifest = os.path.join(self.folder, "manifest")
        with open(manifest, "rb") as file:
            listing = file.read()
        for path, content, words in ((shard, whole[:-1], shard), (shard, whole[:-1] + bytes([whole[-1] ^ 1]), shard), (shard, None, shard),
                                     (manifest, listing[:40] + bytes([listing[40] ^ 1]) + listing[41:], manifest), (manifest, None, manifest)):
            if content is None:
                os.unlink(path)
            else:
                with open(path, "wb") as file:
                    file.write(content)
            done = self.run_tool(MUSTER, "params", "serve", "--listen", "127.0.0.1:0", "--memory-max", "64M", "--restore", self.folder)
            self.assertEqual((done.returncode != 0, done.stdout), (True, ""), (path, content is None))
            self.assertIn(words, done.stderr)
            self.assertIn("restore another cut: older ones of a folder are its manifest-NUMBER", done.stderr)
            for original, text in ((shard, whole), (manifest, listing)):
                with open(original, "wb") as file:
                    file.write(text)

    def test_wrong_words_are_refused(self):
        for words, code, text in (((self.folder,), 2, "--server must be the address of a server"), (("--server", "127.0.0.1:1"), 2, "one folder must"),
                                  (("--server", "127.0.0.1:1", "/no/such"), 2, "DIR: the folder /no/such cannot be made: No such file or directory; make the folder above it"),
                                  (("--server", "127.0.0.1:1", MUSTER), 2, f"DIR: {MUSTER} is not a folder; name another path"),
                                  (("--server", "127.0.0.1:1", "--clock", "3", "--every", "5", self.folder), 2, "give one of them"),
                                  (("--server", "127.0.0.1:1", "--every", "9ms", self.folder), 2, "--every must be 0 or at least 10ms, got 0.009 s"),
                                  (("--server", "127.0.0.1:1", "--timeout", "0.2", self.folder), 4, "127.0.0.1:1")):
            done = self.run_tool(MUSTER, "params", "cut", *words)
            self.assertEqual((done.returncode, done.stdout), (code, ""), words)
            self.assertIn(text, done.stderr)
        new = os.path.join(self.folder, "new")
        done = self.run_tool(MUSTER, "params", "cut", "--server", "127.0.0.1:1", "--timeout", "0.2", new)
        self.assertEqual((done.returncode, os.listdir(new)), (4, []), done.stderr)


if __name__ == "__main__":
    cases.main()
