#!/usr/bin/env python3
"""The gRPC door of servers that share a job: any server takes calls for any key, and a push that is sent again to another server counts once.

Needs grpcio (MUSTER_GRPC_PYTHON names an interpreter that has it), protobuf and protoc.
"""
import json
import os
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()
import needs
import params_stranger

needs.run_with("grpc", "python3-grpcio")
import grpc
from params_cluster import MUSTER, PATIENCE_S, ParamsCluster

KEYS = list(range(1000))  # enough that each of three servers leads some of them


def setUpModule():
    global pb
    pb = params_stranger.messages(unittest.addModuleCleanup)


class SharedDoor(ParamsCluster):
    def strangers(self, count, *words):
        keepers, addresses = self.servers(count, *words)
        channels = [grpc.insecure_channel(address) for address in addresses.split(",")]
        for channel in channels:
            self.addCleanup(channel.close)
        return keepers, [params_stranger.Stranger(channel, pb) for channel in channels]

    def begin(self, stranger, name="trainer", **schema):
        source = params_stranger.until_answered(stranger.Open, pb.OpenRequest(name=name)).source
        params_stranger.until_answered(stranger.Table, pb.TableRequest(schema=pb.Schema(name="items", row_elements=2, **schema)))
        return source

    def push(self, source, sequence):
        return pb.PushRequest(source=source, sequence=sequence, table_name="items", keys=KEYS, values=[1.0, 2.0] * len(KEYS))

    def assert_rows(self, stranger, pushes):
        pulled = params_stranger.until_answered(stranger.Pull, pb.PullRequest(table_name="items", keys=KEYS))
        self.assertEqual(len(pulled.values), 2 * len(KEYS))
        self.assertEqual(set(zip(pulled.values[::2], pulled.values[1::2])), {(1.0 * pushes, 2.0 * pushes)})

    def test_a_push_counts_once_whichever_servers_it_is_sent_to(self):
        for words in ((), ("--replicas", "2")):
            with self.subTest(words=words):
                self.setUp()
                _, strangers = self.strangers(3, *words)
                source = self.begin(strangers[0])
                for sequence in (1, 2):
                    for stranger in strangers + strangers[:1]:
                        answer = stranger.Push(self.push(source, sequence))
                        self.assertEqual((answer.applied, answer.refused), (len(KEYS), 0))
                    for stranger in strangers:
                        self.assert_rows(stranger, sequence)
                self.assertEqual(strangers[2].Open(pb.OpenRequest(name="trainer")).next_sequence, 3)

    def test_a_push_and_pull_answers_with_the_rows_behind_it(self):
        _, strangers = self.strangers(2)
        source = self.begin(strangers[0], value_type=pb.VALUE_TYPE_BF16)
        for i, stranger in enumerate(strangers):
            answer = stranger.PushPull(pb.PushPullRequest(push=self.push(source, i + 1)))
            self.assertEqual((answer.pushed.applied, list(answer.rows.values)), (len(KEYS), [i + 1.0, 2.0 * (i + 1)] * len(KEYS)))

    def test_a_push_that_a_death_has_interrupted_counts_once_at_another_server(self):
        keepers, strangers = self.strangers(3, "--replicas", "2")
        source = self.begin(strangers[0])
        strangers[0].Push(self.push(source, 1))
        sent = strangers[0].start("Push", self.push(source, 2))
        self.kill_server(keepers[0])
        sent.exception(timeout=PATIENCE_S)  # answered or not
        for stranger in strangers[1:]:
            params_stranger.until_answered(stranger.Push, self.push(source, 2))
            self.assert_rows(stranger, 2)

    def test_rounds_go_on_over_a_servers_death(self):
        keepers, strangers = self.strangers(3, "--replicas", "2")
        ask, sources = params_stranger.until_answered, []
        for name in ("a", "b"):
            sources.append(ask(strangers[0].Open, pb.OpenRequest(name=name)).source)
        ask(strangers[0].Table, pb.TableRequest(schema=pb.Schema(name="sums", row_elements=1, is_by_round=True)))
        for clock in range(4):
            pushes = [pb.PushRequest(source=source, sequence=clock + 1, table_name="sums", keys=KEYS, values=[value] * len(KEYS), clock=clock)
                      for source, value in zip(sources, (1, 10))]
            first = strangers[clock % 2]
            for push in pushes:
                ask(first.Push, push)
            if clock == 1:
                self.kill_server(keepers[2])
            for push in pushes:  # again, whichever server it is sent to
                ask(strangers[(clock + 1) % 2].Push, push)
            for source in sources:
                ask(first.Tick, pb.TickRequest(source=source, clock=clock + 1, sources=2))
            pulled = ask(strangers[(clock + 1) % 2].Pull, pb.PullRequest(table_name="sums", keys=KEYS, min_clock=clock + 1))
            self.assertEqual(set(pulled.values), {11.0 * (clock + 1)})

    def test_a_tick_at_one_server_counts_at_all(self):
        keepers, strangers = self.strangers(3, "--replicas", "2")
        sources = [self.begin(stranger, name) for stranger, name in zip(strangers, ("a", "b"))]
        watch = strangers[2].watch()
        for stranger, source, clock in zip(strangers, sources, (3, 5)):
            params_stranger.until_answered(stranger.Tick, pb.TickRequest(source=source, clock=clock, sources=2))
        told = next(message for message in watch if message.clocks.low == 3)
        self.assertEqual((told.clocks.high, told.clocks.known, told.clocks.slowest), (5, 2, sources[0].id))
        self.assertEqual((len(told.servers), told.replicas), (3, 2))
        self.assertEqual(sum(server.primaries for server in told.servers), told.shards)
        code, why = params_stranger.refusal(strangers[0].Tick, pb.TickRequest(source=sources[0], clock=2, sources=2))
        self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("must not fall, got 2", why)
        self.kill_server(keepers[0])
        shrunk = next(message for message in watch if message.map > told.map)
        self.assertIn(len(shrunk.servers), (2, 3))
        watch.cancel()

    def inspect(self, address, *words, code=0):
        done = subprocess.run([MUSTER, "params", "inspect", "--json", "--server", address, *words], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout), done.stderr

    def test_inspect_asks_all_servers_of_the_job(self):
        alone = self.serve()[1]
        channel = grpc.insecure_channel(alone)
        self.addCleanup(channel.close)
        stranger = params_stranger.Stranger(channel, pb)
        stranger.Push(self.push(self.begin(stranger), 1))
        expected = self.inspect(alone, "--digest")[0]["tables"]
        _, addresses = self.servers(2, "--replicas", "2")
        addresses = addresses.split(",")
        for address in addresses[:1]:
            channel = grpc.insecure_channel(address)
            self.addCleanup(channel.close)
            stranger = params_stranger.Stranger(channel, pb)
            stranger.Push(self.push(self.begin(stranger), 1))
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([MUSTER, "params", "cut", "--server", addresses[0], "--job", "j", folder], check=True, timeout=PATIENCE_S,
                           stdout=subprocess.DEVNULL)
            for address in addresses:
                shown = self.inspect(address, "--digest", "items", "5")[0]
                self.assertEqual(shown["tables"], expected)
                self.assertEqual(sorted(server["address"] for server in shown["servers"]), sorted(addresses))
                self.assertEqual([sum(server[key] for server in shown["servers"]) for key in ("primaries", "replicas")], [256, 256])
                self.assertEqual([server["rows"] for server in shown["servers"]], [len(KEYS)] * 2)
                self.assertEqual((shown["replicas"], shown["short_shards"], shown["moves"]), (2, 0, []))
                self.assertEqual([row["values"] for row in shown["rows"]], [[1.0, 2.0]])
                self.assertEqual([cut["name"] for cut in shown["cuts"]], [folder])
                self.assertEqual(shown["cuts"][0]["bytes"], sum(file.stat().st_size for file in os.scandir(folder) if "shard" in file.name))

    def test_a_digest_is_of_all_rows_while_shards_move(self):
        address = self.servers(2)[1].split(",")[0]
        channel = grpc.insecure_channel(address)
        self.addCleanup(channel.close)
        stranger = params_stranger.Stranger(channel, pb)
        source = self.begin(stranger)
        for i in range(4):  # enough that a digest takes longer than a map
            keys = range(i * 50_000, (i + 1) * 50_000)
            stranger.Push(pb.PushRequest(source=source, sequence=i + 1, table_name="items", keys=keys, values=[1.0, 2.0] * len(keys)))
        expected = self.inspect(address, "--digest")[0]["tables"]
        for _ in range(4):
            keeper, _ = self.server()
            while keeper.poll() is None:
                done = subprocess.run([MUSTER, "params", "inspect", "--json", "--digest", "--interval", "0", "--server", address],
                                      capture_output=True, text=True, timeout=PATIENCE_S, check=False)
                shown = json.loads(done.stdout)
                if done.returncode == 0:  # else a server has just ended
                    self.assertEqual(shown["tables"], expected)
                if len(shown["servers"]) == 3:
                    keeper.terminate()

    def test_inspect_names_a_server_that_does_not_answer(self):
        with socket.socket() as silent:  # bound and not listening: connections are refused
            silent.bind(("127.0.0.1", 0))
            lost = f"127.0.0.1:{silent.getsockname()[1]}"
            _, address = self.server("--expect", "2")
            self.server("--expect", "2", "--reach", lost)
            self.wait_until(lambda: len(self.inspect_servers(address)) == 2, "the job does not begin")
            shown, error = self.inspect(address, code=4)
        self.assertIn(lost, error)
        self.assertEqual([server["address"] for server in shown["servers"] if "error" in server], [lost])

    def inspect_servers(self, address):
        done = subprocess.run([MUSTER, "params", "inspect", "--json", "--interval", "0", "--server", address], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)
        return json.loads(done.stdout)["servers"]

    def test_refusals_have_gRPCs_codes_and_say_why(self):
        _, strangers = self.strangers(2)
        source = self.begin(strangers[0])
        younger = strangers[1].Open(pb.OpenRequest(name="trainer")).source
        self.assertEqual(strangers[0].Push(self.push(younger, 1)).applied, len(KEYS))
        for call, request, code, why in (
                (strangers[0].Push, self.push(source, 2), grpc.StatusCode.ABORTED, "a younger process"),
                (strangers[0].Push, self.push(younger, 0), grpc.StatusCode.INVALID_ARGUMENT, "from 1 to 2^47 - 1, got 0"),
                (strangers[0].Push, self.push(None, 1), grpc.StatusCode.INVALID_ARGUMENT, "the source that Open has given"),
                (strangers[0].Pull, pb.PullRequest(table_number=0, keys=[1]), grpc.StatusCode.INVALID_ARGUMENT, "the name of a table"),
                (strangers[0].Pull, pb.PullRequest(table_name="nothing", keys=[1]), grpc.StatusCode.NOT_FOUND, "no table nothing"),
                (strangers[1].Table, pb.TableRequest(schema=pb.Schema(name="items", row_elements=3)), grpc.StatusCode.INVALID_ARGUMENT, "items")):
            answer = params_stranger.refusal(call, request)
            self.assertEqual(answer[0], code, answer)
            self.assertIn(why, answer[1])


if __name__ == "__main__":
    unittest.main()
