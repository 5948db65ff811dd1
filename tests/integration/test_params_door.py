#!/usr/bin/env python3
"""The gRPC door of `muster params serve`, with grpcio as a stranger, and `muster params inspect`: a push that is sent again after the
server's death counts once, and what is pushed is shown.

Needs grpcio (MUSTER_GRPC_PYTHON names an interpreter that has it), protobuf and protoc.
"""
import json
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()
import needs
import params_stranger

needs.run_with("grpc", "python3-grpcio")
import grpc

MUSTER = os.path.join(os.environ["MUSTER_BINARY_DIR"], "bin", "muster")
PATIENCE_S = 60


def setUpModule():
    global pb
    pb = params_stranger.messages(unittest.addModuleCleanup)


class Door(unittest.TestCase):
    def setUp(self):
        self.process = subprocess.Popen([MUSTER, "params", "serve", "--listen", "127.0.0.1:0", "--memory-max", "64M"], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end)
        self.address = self.process.stdout.readline().split()[1]
        channel = grpc.insecure_channel(self.address)
        self.addCleanup(channel.close)
        self.stranger = params_stranger.Stranger(channel, pb)

    def end(self):
        self.process.terminate()
        _, err = self.process.communicate(timeout=PATIENCE_S)
        self.assertEqual(self.process.returncode, 0, err)

    def inspect(self, *words, code=0):
        done = subprocess.run([MUSTER, "params", "inspect", "--server", self.address, *words], capture_output=True, text=True, timeout=PATIENCE_S,
                              check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def open_table(self):
        source = self.stranger.Open(pb.OpenRequest(name="stranger")).source
        schema = pb.Schema(name="items", row_elements=2)
        self.assertEqual(self.stranger.Table(pb.TableRequest(schema=schema)).table.schema.row_elements, 2)
        return source

    def push(self, source, sequence, **fields):
        return pb.PushRequest(source=source, sequence=sequence, table_name="items", keys=[5, 2 ** 63 + 1], values=[1, 2, 3, 4], **fields)

    def kill_server(self):
        """The process that has the connections is killed; the answer tells that the next one serves."""
        before = json.loads(self.inspect("--json").stdout)["servers"][0]["incarnation"]
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as file:
            children = [int(word) for word in file.read().split()]
        for child in children:  # either may have the seat, the other is the spare
            os.kill(child, signal.SIGKILL)
            self.wait_until_gone(child)
            if json.loads(self.inspect("--json").stdout)["servers"][0]["incarnation"] != before:
                return
        self.fail("both processes were killed, and the same one serves")

    def wait_until_gone(self, child):
        until = time.monotonic() + PATIENCE_S
        while os.path.exists(f"/proc/{child}"):
            self.assertLess(time.monotonic(), until, f"process {child} does not end")
            time.sleep(0.01)

    def test_a_push_that_is_sent_again_counts_once(self):
        source = self.open_table()
        self.assertEqual(self.stranger.Push(self.push(source, 1)).applied, 2)
        self.assertEqual(self.stranger.Push(self.push(source, 1)).duplicate, 2)
        self.kill_server()
        self.assertEqual(params_stranger.until_answered(self.stranger.Push, self.push(source, 1)).duplicate, 2)
        self.assertEqual(self.stranger.Push(self.push(source, 2)).applied, 2)
        pulled = self.stranger.Pull(pb.PullRequest(table_name="items", keys=[2 ** 63 + 1, 5, 6]))
        self.assertEqual(list(pulled.values), [6, 8, 2, 4, 0, 0])
        self.assertEqual(self.stranger.Open(pb.OpenRequest(name="stranger")).next_sequence, 3)

    def test_refusals_have_gRPCs_codes_and_say_why(self):
        source = self.open_table()
        code, why = params_stranger.refusal(self.stranger.Push, self.push(source, 3))
        self.assertEqual(code, grpc.StatusCode.FAILED_PRECONDITION)
        self.assertIn("push 1 of the source is due, got 3", why)
        code, why = params_stranger.refusal(self.stranger.Pull, pb.PullRequest(table_name="nothing", keys=[1]))
        self.assertEqual((code, why), (grpc.StatusCode.NOT_FOUND, "the server has no table nothing"))
        self.stranger.Open(pb.OpenRequest(name="stranger"))
        self.assertEqual(params_stranger.refusal(self.stranger.Push, self.push(source, 1))[0], grpc.StatusCode.ABORTED)

    def test_full_memory_refuses_new_rows_and_nothing_else(self):
        source = self.stranger.Open(pb.OpenRequest(name="stranger")).source
        self.stranger.Table(pb.TableRequest(schema=pb.Schema(name="wide", row_elements=4096)))
        sequence, refused = 0, 0
        while refused == 0:
            keys = range(sequence * 200, (sequence + 1) * 200)
            sequence += 1
            answer = self.stranger.Push(pb.PushRequest(source=source, sequence=sequence, table_name="wide", keys=keys, values=[1.0] * 200 * 4096))
            refused = answer.refused
            self.assertEqual(answer.applied + answer.refused, 200)
        answer = self.stranger.Push(pb.PushRequest(source=source, sequence=sequence + 1, table_name="wide", keys=keys, values=[1.0] * 200 * 4096))
        self.assertEqual((answer.applied, answer.refused), (200 - refused, refused))
        pulled = self.stranger.Pull(pb.PullRequest(table_name="wide", keys=keys)).values
        rows = [set(pulled[i * 4096:(i + 1) * 4096]) for i in range(200)]
        self.assertEqual((rows.count({2.0}), rows.count({0.0})), (200 - refused, refused))

    def test_a_watch_tells_of_tables_and_clocks(self):
        source = self.stranger.Open(pb.OpenRequest(name="stranger")).source
        watch = self.stranger.watch(source)
        first = next(watch)
        self.assertEqual((first.map, first.shards, first.short_shards, len(first.servers), len(first.tables)), (1, 256, 0, 1, 0))
        self.assertEqual(first.servers[0].primaries, 256)
        self.open_table()
        self.assertEqual([table.schema.name for table in next(watch).tables], ["items"])
        source = self.stranger.Open(pb.OpenRequest(name="stranger")).source
        self.assertEqual(self.stranger.Tick(pb.TickRequest(source=source, clock=4, sources=1)).clocks.low, 4)
        told = next(watch)
        self.assertEqual((told.clocks.has_low, told.clocks.low, told.clocks.slowest), (True, 4, source.id))
        watch.cancel()

    def test_a_pull_waits_for_the_clock_of_all_sources(self):
        sources = [self.open_table(), self.stranger.Open(pb.OpenRequest(name="another")).source]
        self.stranger.Tick(pb.TickRequest(source=sources[1], clock=0, sources=2))
        self.stranger.Push(self.push(sources[0], 1))
        self.stranger.Tick(pb.TickRequest(source=sources[0], clock=1, sources=2))
        pull = self.stranger.start("Pull", pb.PullRequest(table_name="items", keys=[5], min_clock=1, source=sources[0]))
        self.stranger.Push(self.push(sources[1], 1))
        self.assertFalse(pull.done())
        self.stranger.Tick(pb.TickRequest(source=sources[1], clock=1, sources=2))
        self.assertEqual(list(pull.result(timeout=PATIENCE_S).values), [2, 4])

    def test_rounds_are_pushed_and_pulled_over_the_servers_death(self):
        sources = [self.stranger.Open(pb.OpenRequest(name=name)).source for name in ("a", "b")]
        schema = pb.Schema(name="sums", row_elements=1, is_by_round=True, is_round_mean=True)
        self.assertTrue(self.stranger.Table(pb.TableRequest(schema=schema)).table.schema.is_by_round)
        ask = params_stranger.until_answered
        for clock in range(2):
            pushes = [pb.PushRequest(source=source, sequence=clock + 1, table_name="sums", keys=[7], values=[value], clock=clock)
                      for source, value in zip(sources, (1, 4))]
            for push in pushes:
                self.assertEqual(ask(self.stranger.Push, push).applied, 1)
            if clock == 0:
                self.kill_server()
            for push in pushes:
                self.assertEqual(ask(self.stranger.Push, push).duplicate, 1)
            for source, weight in zip(sources, (2, 1)):
                ask(self.stranger.Tick, pb.TickRequest(source=source, clock=clock + 1, sources=2, weight=weight))
            pulled = ask(self.stranger.Pull, pb.PullRequest(table_name="sums", keys=[7], min_clock=clock + 1))
            self.assertEqual(list(pulled.values), [2.0 * (clock + 1)])
        late = pb.PushRequest(source=sources[0], sequence=3, table_name="sums", keys=[7], values=[1], clock=0)
        code, why = params_stranger.refusal(self.stranger.Push, late)
        self.assertEqual((code, why), (grpc.StatusCode.OUT_OF_RANGE, "round 0 of table sums is closed; 2 is open"))

    def test_ranges_of_a_tensor_are_pushed_and_pulled(self):
        source = self.stranger.Open(pb.OpenRequest(name="stranger")).source
        self.stranger.Table(pb.TableRequest(schema=pb.Schema(name="weights", row_elements=1024, tensor_elements=5000)))
        push = pb.PushRequest(source=source, sequence=1, table_name="weights", offset=1024, values=range(1024, 5000))
        self.assertEqual(self.stranger.Push(push).applied, 4)
        self.assertEqual(self.stranger.Push(push).duplicate, 4)
        pulled = self.stranger.Pull(pb.PullRequest(table_name="weights", offset=1022, elements=4)).values
        self.assertEqual(list(pulled), [0, 0, 1024, 1025])
        self.assertEqual(list(self.stranger.Pull(pb.PullRequest(table_name="weights", offset=4998)).values), [4998, 4999])

    def test_a_tick_is_kept_over_the_servers_death(self):
        source = self.open_table()
        self.stranger.Tick(pb.TickRequest(source=source, clock=4, sources=1))
        self.kill_server()
        until = time.monotonic() + PATIENCE_S
        while True:  # the connection ends some time after the process
            try:
                clocks = self.stranger.Inspect(pb.InspectRequest()).clocks
                break
            except grpc.RpcError:
                self.assertLess(time.monotonic(), until)
        self.assertEqual((clocks.low, clocks.known), (4, 1))

    def test_inspect_shows_what_was_pushed(self):
        source = self.open_table()
        empty = json.loads(self.inspect("--json", "--digest").stdout)
        self.stranger.Push(self.push(source, 1, clock=7))
        shown = json.loads(self.inspect("--json", "--digest", "items", "5", str(2 ** 63 + 1), "0x10").stdout)
        self.assertEqual(shown["shards"], 256)
        self.assertEqual(shown["sources"], {"open": 1, "clock_low": None, "clock_high": None, "slowest": None, "slowest_name": None})
        self.assertEqual([shown[key] for key in ("map_epoch", "replicas", "short_shards", "moves", "cuts")], [1, 1, 0, [], []])
        server, table = shown["servers"][0], shown["tables"][0]
        self.assertEqual((server["address"], server["rows"], server["pushes"], server["pushed_rows"]), (self.address, 2, 1, 2))
        self.assertEqual((server["primaries"], server["replicas"], server["pushes_per_s"], server["lag_frames"]), (256, 0, 0, 0))
        self.assertIsNone(json.loads(self.inspect("--json", "--interval", "0").stdout)["servers"][0]["pushes_per_s"])
        self.assertEqual((table["name"], table["rows"], table["optimizer"], table["dtype"]), ("items", 2, "add", "f32"))
        self.assertEqual(table["row_bytes"] % 16, 0)
        self.assertNotEqual(table["digest"], empty["tables"][0]["digest"])
        self.assertEqual(shown["rows"], [{"key": 5, "exists": True, "pushes": 1, "clock": 7, "values": [1.0, 2.0]},
                                         {"key": str(2 ** 63 + 1), "exists": True, "pushes": 1, "clock": 7, "values": [3.0, 4.0]},
                                         {"key": 16, "exists": False, "pushes": 0, "clock": 0, "values": [0.0, 0.0]}])

    def test_inspect_shows_clocks(self):
        source = self.open_table()
        self.stranger.Tick(pb.TickRequest(source=source, clock=4, sources=1))
        self.assertEqual(json.loads(self.inspect("--json").stdout)["sources"],
                         {"open": 1, "clock_low": 4, "clock_high": 4, "slowest": source.id.hex(), "slowest_name": None})
        self.assertIn(f"clocks: 4 to 4, 1 of 1 sources have ticked, slowest {source.id.hex()}", self.inspect().stdout)

    def test_inspect_shows_what_happens_now(self):
        source = self.open_table()
        stop = threading.Event()

        def push():
            sequence = 1
            while not stop.is_set():
                self.stranger.Push(self.push(source, sequence))
                sequence += 1

        pushing = threading.Thread(target=push)
        pushing.start()
        try:
            shown = json.loads(self.inspect("--json", "--interval", "0.5").stdout)["servers"][0]
        finally:
            stop.set()
            pushing.join()
        self.assertGreater(shown["pushes_per_s"], 0)
        self.assertEqual(shown["pulls_per_s"], 0)

    def test_inspect_is_readable_by_default(self):
        self.stranger.Push(self.push(self.open_table(), 1))
        text = self.inspect("--digest").stdout
        self.assertIn(f"{self.address}: 2 rows in ", text)
        self.assertRegex(text, r"(?m)^TABLE +ROWS +ELEMENTS +ROW BYTES +TYPE +OPTIMIZER +DIGEST$")
        self.assertRegex(text, r"(?m)^items +2 +2 +\d+ +f32 +add +[0-9a-f]{32}$")
        head, row = text.splitlines()[-2:]
        self.assertEqual(head.index("DIGEST"), row.rindex(" ") + 1)
        self.assertRegex(self.inspect("items", "5").stdout, r"(?m)^ +5 +1 +0 +1 2$")

    def test_inspect_ends_as_other_commands_do(self):
        self.assertIn("no table nothing", self.inspect("nothing", code=3).stderr)
        for words, text in ((["items", "x"], "got 'x'"), (["items", "-1"], "-1"), (["items", str(2 ** 64)], "2^64 - 1"), (["--tls-cert", "x"], "--tls-key")):
            self.assertIn(text, self.inspect(*words, code=2).stderr)
        done = subprocess.run([MUSTER, "params", "inspect", "--server", "127.0.0.1:1"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 4, done.stderr)
        done = subprocess.run([MUSTER, "params", "inspect"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--server", done.stderr)


class JobDoor(unittest.TestCase):
    def test_a_call_that_names_another_job_is_refused(self):
        process = subprocess.Popen([MUSTER, "params", "serve", "--listen", "127.0.0.1:0", "--memory-max", "64M", "--job", "words"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.terminate)
        channel = grpc.insecure_channel(process.stdout.readline().split()[1])
        self.addCleanup(channel.close)
        for job in ("words", None):
            self.assertEqual(params_stranger.Stranger(channel, pb, job).Inspect(pb.InspectRequest()).shards, 256)
        for method, request in (("Inspect", pb.InspectRequest()), ("Open", pb.OpenRequest(name="x"))):
            with self.assertRaises(grpc.RpcError) as refused:
                getattr(params_stranger.Stranger(channel, pb, "numbers"), method)(request)
            self.assertEqual(refused.exception.code(), grpc.StatusCode.FAILED_PRECONDITION)
            self.assertEqual(refused.exception.details(), 'jobs differ: "words" here, "numbers" in the call')


if __name__ == "__main__":
    unittest.main()
