#!/usr/bin/env python3
"""`muster params serve` and `muster bench params`: a server that is killed loses and doubles nothing; its keeper, and its end."""
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import sys
import unittest
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()

from params_cluster import MUSTER, PATIENCE_S, ParamsCluster, children_of


class Serve(ParamsCluster):
    def open(self, *words):
        """Returns the address."""
        self.process, address = self.serve(*words)
        return address

    def test_sigterm_ends_it_in_order(self):
        self.open()
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=PATIENCE_S)
        self.assertEqual((self.process.returncode, out), (0, ""), err)

    def test_a_killed_server_is_replaced_and_the_ready_line_comes_once(self):
        self.open()
        keeper = self.process.pid
        self.wait_until(lambda: len(children_of(keeper)) == 2, "the keeper has no spare")
        for _ in range(6):
            before = children_of(keeper)
            os.kill(before[0], signal.SIGKILL)
            self.wait_until(lambda: len(children_of(keeper)) == 2 and before[0] not in children_of(keeper), "no successor")
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=PATIENCE_S)
        self.assertEqual((self.process.returncode, out), (0, ""), err)
        self.assertIn("killed by signal 9", err)
        takes = [line.split("takes=")[1].split()[0] for line in err.splitlines() if "params_seat_taken" in line]
        # A kill may come between a take and its line.
        self.assertEqual(takes, sorted(set(takes), key=int))
        self.assertGreater(len(takes), 1)
        self.assertIn(err.count("params_server_open"), range(1, len(takes) + 1))  # a kill may come between the two lines

    def test_clients_that_are_killed_while_they_write_leave_whole_pushes(self):
        # Each push adds 1 to the same four rows: they differ where a part of one was applied.
        address = self.open()
        counter = [os.path.join(os.path.dirname(MUSTER), "counter_params"), address]
        for i in range(30):
            process = subprocess.Popen(counter, stdout=subprocess.DEVNULL)
            try:
                process.wait(timeout=0.01 + 0.002 * i)
            except subprocess.TimeoutExpired:
                process.kill()
            process.wait()
        totals = subprocess.run(counter, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=True).stdout.split()[1:]
        self.assertEqual(len(set(totals)), 1, totals)
        self.assertIn(int(totals[0]), range(100, 31 * 100 + 1))

    def test_rows_outlive_a_file_that_is_missing_while_the_server_dies(self):
        with tempfile.TemporaryDirectory() as folder:
            policy, away, log = os.path.join(folder, "policy.json"), os.path.join(folder, "away"), self.log_file()
            with open(policy, "w", encoding="ascii") as file:
                file.write('{"name":"params","allow_rules":[{"name":"all"}]}')
            self.process, address = self.serve("--authorization", policy, log=log)
            counter = [os.path.join(os.path.dirname(MUSTER), "counter_params"), address]
            subprocess.run(counter, stdout=subprocess.PIPE, timeout=PATIENCE_S, check=True)
            os.rename(policy, away)
            for child in children_of(self.process.pid):  # any of them may have the seat
                os.kill(child, signal.SIGKILL)

            def says_so():
                with open(log.name, encoding="utf-8") as file:
                    text = file.read()
                return f"--authorization {policy} cannot be read" in text and "trying again until SIGTERM; the rows stay" in text
            self.wait_until(says_so, "the keeper does not try again")
            os.rename(away, policy)
            done = subprocess.run(counter, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=True)
            self.assertEqual(done.stdout, "totals 200 200 200 200\n")
            self.process.send_signal(signal.SIGTERM)
            self.assertEqual(self.process.wait(timeout=PATIENCE_S), 0)

    def runs(self, pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                return file.read().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False

    def test_the_ready_line_comes_though_the_first_server_dies_before_it(self):
        # Nobody reads the pipe, which is full, while the first server is killed.
        read_end, write_end = os.pipe()
        self.addCleanup(os.close, read_end)
        os.set_blocking(write_end, False)
        filler = 0
        try:
            while True:
                filler += os.write(write_end, b"." * 4096)
        except BlockingIOError:
            os.set_blocking(write_end, True)
        log = self.log_file()
        process = self.start(MUSTER, "params", "serve", "--listen", "127.0.0.1:0", "--memory-max", self.memory, output=write_end, log=log)
        os.close(write_end)
        self.wait_until(lambda: self.lines_of(log.name, "params_server_open"), "no server")
        children = children_of(process.pid)
        for child in children:
            os.kill(child, signal.SIGKILL)
        self.wait_until(lambda: not any(self.runs(child) for child in children), f"one of {children} lives on")
        while filler > 0:
            filler -= len(os.read(read_end, filler))
        self.assertTrue(select.select([read_end], [], [], PATIENCE_S)[0], "no ready line")
        self.assertEqual(os.read(read_end, 4096).split()[0], b"listening")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=PATIENCE_S), 0)
        self.assertEqual(os.read(read_end, 4096), b"")  # it came once

    def test_children_end_with_their_keeper(self):
        self.open()
        children = children_of(self.process.pid)
        self.process.kill()
        self.wait_until(lambda: not any(os.path.exists(f"/proc/{child}") for child in children), f"one of {children} lives on")

    def test_an_address_in_use_is_told(self):
        address = self.open()
        done = subprocess.run([MUSTER, "params", "serve", "--listen", address], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("choose another --listen", done.stderr)

    def test_the_status_page_shows_metrics(self):
        self.open("--status", "127.0.0.1:0")
        page = self.process.stdout.readline().split()[1]
        with urllib.request.urlopen(page + "metrics" if page.endswith("/") else page + "/metrics", timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        for line in ("muster_params_pushes_total 0", "muster_params_memory_max_bytes 67108864", "# TYPE grpc_server_call_started_total counter"):
            self.assertIn(line, text)

    def test_wrong_options_are_refused(self):
        for words, text in ((["--cut-keep", "2"], "need --cut-dir DIR"), (["--tls-client-ca", "x"], "got --tls-client-ca alone"),
                            (["--restore", "/nowhere"], "cannot read /nowhere/manifest: No such file or directory"),
                            (["--authorization", __file__], f"--authorization {__file__}: bad JSON"),
                            (["--shards", "100"], "power of two"), (["--memory-max", "1M"], "--memory-max"), (["--listen", "nonsense"], "--listen")):
            done = subprocess.run([MUSTER, "params", "serve", *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            self.assertNotEqual(done.returncode, 0, words)
            self.assertIn(text, done.stderr)


class Bench(unittest.TestCase):
    def run_bench(self, *words, path=None):
        environment = {**os.environ, "PATH": os.environ["PATH"] if path is None else path}
        return subprocess.run([MUSTER, "bench", "params", "--json", "--memory-max", "256M", *words], capture_output=True, text=True,
                              timeout=600, check=False, env=environment)

    def bench(self, *words):
        """On a busy machine no call may end in the time that the case gives: the last option of a name counts."""
        for seconds in (None, "2", "20"):
            done = self.run_bench(*words, *(("--seconds", seconds) if seconds else ()))
            if "give more --seconds" not in done.stderr:
                break
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_kills_in_the_middle_of_pushes_lose_and_double_nothing(self):
        for words in (["--rows", "1000"], ["--rows", "64", "--value-bytes", "4K", "--batch", "16"], ["--mix", "push_pull", "--batch", "1"]):
            result = self.bench("--clients", "3", "--depth", "4", "--seconds", "0.2", "--kills", "6", "--kill-interval", "20ms", "--wire", "shm", *words)
            self.assertEqual((result["kills"], result["lost"], result["doubled"]), (6, 0, 0), result)
            self.assertGreater(result["pushed"], 0)
            self.assertGreaterEqual(result["stall_ms"]["max"], result["stall_ms"]["median"])

    def test_tensors_lose_and_double_nothing_by_any_wire(self):
        for words in (["--wire", "tcp"], ["--wire", "auto"], ["--wire", "auto", "--replicas", "2"]):
            result = self.bench("--bulk-bytes", "4M", "--clients", "2", "--depth", "2", "--seconds", "0.5", "--kills", "3",
                                "--kill-interval", "20ms", *words)
            self.assertEqual((result["kills"], result["lost"], result["doubled"]), (3, 0, 0), result)
        for wire in ("tcp", "auto"):
            result = self.bench("--bulk-bytes", "4M", "--clients", "1", "--depth", "2", "--seconds", "0.2", "--mix", "pull", "--wire", wire)
            self.assertGreater(result["bulk_gb_per_s"], 0)

    def test_the_result_has_the_keys_of_the_contract(self):
        for mix in ("push", "pull", "push_pull"):
            result = self.bench("--clients", "2", "--seconds", "0.2", "--rows", "500", "--mix", mix, "--wire", "shm")
            self.assertGreater(result["peek_ops_per_s"], 0)
            self.assertEqual(result["torn"], 0)
            self.assertEqual(result["bench"], "params")
            for key in ("ops_per_s", "push_ops_per_s", "pull_ops_per_s", "ops_per_server_cpu_s", "p50_us", "p99_us", "digest"):
                self.assertIn(key, result)
            self.assertEqual(result["push_ops_per_s"] > 0, mix != "pull")
            self.assertEqual(result["pull_ops_per_s"] > 0, mix != "push")

    def test_results_with_and_without_kills_have_the_same_keys(self):
        words = ("--clients", "2", "--seconds", "0.2", "--rows", "500")
        plain, killed = self.bench(*words), self.bench(*words, "--kills", "1", "--wire", "tcp")
        self.assertEqual(list(plain), list(killed))
        self.assertEqual((plain["stall_ms"], killed["ops_per_server_cpu_s"]), (None, None))
        self.assertEqual(sorted(killed["stall_ms"]), ["max", "median", "p90", "p99"])
        self.assertGreater(plain["ops_per_server_cpu_s"], 0)

    def test_memory_of_servers_with_replicas_is_refused(self):
        done = self.run_bench("--wire", "shm", "--replicas", "2")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("--wire shm needs --replicas 1, got 2", done.stderr)

    def test_the_result_names_the_wire(self):
        for wire, shown in (("tcp", "tcp"), ("shm", "shm"), ("auto", "shm"), ("grpc", "grpc")):
            result = self.bench("--clients", "2", "--depth", "2", "--seconds", "0.1", "--rows", "500", "--wire", wire)
            self.assertEqual(result["wire"], shown)
            self.assertEqual(result["peek_ops_per_s"] is not None, shown == "shm")

    def test_calls_by_grpc_count_once_and_read_what_links_read(self):
        for mix in ("push", "pull", "push_pull"):
            result = self.bench("--clients", "2", "--depth", "3", "--seconds", "0.1", "--rows", "500", "--mix", mix, "--wire", "grpc")
            self.assertEqual((result["lost"], result["doubled"]), (0, 0))
            self.assertEqual(result["push_ops_per_s"] > 0, mix != "pull")
            self.assertEqual(result["pull_ops_per_s"] > 0, mix != "push")

    def test_all_rows_are_there_before_the_load(self):
        result = self.bench("--clients", "1", "--depth", "1", "--seconds", "0.05", "--mix", "pull", "--rows", "5000", "--wire", "tcp")
        self.assertEqual((result["pushed"], result["lost"], result["doubled"]), (5000, 0, 0))

    def test_a_paced_load_measures_calls_from_when_they_were_due(self):
        # One call at a time cannot keep up with this rate, so that calls start later and later: the last ones by most of the load's
        # time, of which a busy machine may take a part.
        result = self.bench("--clients", "1", "--depth", "1", "--batch", "8", "--seconds", "2", "--rows", "500", "--rate", "100000000",
                            "--wire", "tcp")
        self.assertGreater(result["p99_us"], 100000)

    def test_bulk_calls_stand_beside_iperf3_or_say_why_not(self):
        words = ("--bulk-bytes", "1M", "--clients", "1", "--depth", "1", "--seconds", "0.3", "--wire", "tcp")
        done = self.run_bench(*words, path="/nonexistent")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertGreater(result["bulk_gb_per_s"], 0)
        self.assertAlmostEqual(result["bulk_gbps"], 8 * result["bulk_gb_per_s"], delta=0.01)
        self.assertIsNone(result["iperf3_gb_per_s"])
        self.assertIn("iperf3 is left out", done.stderr)
        if shutil.which("iperf3"):
            self.assertGreater(self.bench(*words)["iperf3_gb_per_s"], 0)

    def test_large_calls_end_in_time(self):
        result = self.bench("--clients", "1", "--depth", "1", "--batch", "1000", "--value-bytes", "64K", "--rows", "100", "--seconds", "0.2")
        self.assertGreater(result["peek_ops_per_s"], 0)

    def test_calls_that_are_too_large_for_a_message_are_refused(self):
        for words, text in ((("--bulk-bytes", "64M"), "--bulk-bytes must be at most 16M with --wire grpc"),
                            (("--batch", "1000", "--value-bytes", "64K"), "--batch times --value-bytes must be at most 16M with --wire grpc")):
            done = self.run_bench("--wire", "grpc", *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertIn(text, done.stderr)

    def test_a_run_in_which_no_call_ends_is_an_error(self):
        done = self.run_bench("--bulk-bytes", "32M", "--clients", "1", "--depth", "1", "--seconds", "1ms", "--wire", "tcp")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("no call ended within", done.stderr)

    def test_a_cut_amid_pushes_is_timed(self):
        with tempfile.TemporaryDirectory() as folder:
            result = self.bench("--rows", "20000", "--rate", "50000", "--seconds", "0.2", "--cut-dir", folder, "--wire", "tcp")
            self.assertEqual((result["lost"], result["doubled"]), (0, 0), result)
            self.assertGreater(result["cut_ms"], 0)
            self.assertGreater(result["cut_stall_ms"], 0)
            self.assertGreater(result["plain_stall_ms"], 0)
            self.assertIn("manifest", os.listdir(folder))

    def test_the_same_pushes_give_the_same_rows(self):
        result = self.bench("--clients", "1", "--seconds", "0.1", "--mix", "pull", "--rows", "100")
        again = self.bench("--clients", "2", "--seconds", "0.1", "--mix", "pull", "--rows", "100")
        self.assertEqual(result["digest"], again["digest"])


if __name__ == "__main__":
    unittest.main()
