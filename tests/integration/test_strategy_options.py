#!/usr/bin/env python3
"""Options of strategies that the view carries: who leaves one open takes the members', who wants another is told."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import Job, ask_every, every, ok
from tls_files import OPENSSL, TlsFiles

ASKED = {  # option: what one side says at the other's expense, and how it is told
    "communication=RING": "communication RING.* have agreed on AUTO",
    "bytes_per_pack=1000": "bytes_per_pack 1000.* have agreed on none",
    "timeout_ms=2500": "timeout 2.5 s.* have agreed on none",
    "reproducible=1": "reproducible view.* have agreed on no",
    "fixed=1": "is_fixed_size true.* have agreed on false",
}


class Options(unittest.TestCase):
    def setUp(self):
        self.job = Job()
        self.addCleanup(lambda: self.job.stop())

    def opened(self, rank, size, options="", **variables):
        member = self.job.puppet(rank, size, **variables)
        member.ok(f"open 0 0 - {options}")
        # A member that is refused may know it by now: the error is begin's.
        self.assertRegex(member.ask("register total 8 1"), "^(ok$|INVALID_ARGUMENT .* asks for )")
        return member

    def certificates(self):
        files = TlsFiles(self.addCleanup)
        cert, key = files.issue("member", "URI:spiffe://test/job/7/task")
        return dict(MUSTER_TLS_CERT_FILE=cert, MUSTER_TLS_KEY_FILE=key, MUSTER_TLS_CA_FILE=files.ca, MUSTER_TLS_PEERS="spiffe://test/job/7/*",
                    MUSTER_WIRE="tcp")

    def end(self, *members):
        for member in members:
            member.child.stdin.close()
        for member in members:
            member.end()

    def test_who_asks_for_another_option_than_rank_0_is_told_and_the_others_go_on(self):
        for option, text in ASKED.items():
            with self.subTest(option):
                members = [self.opened(0, 3), self.opened(1, 3), self.opened(2, 3, option)]
                begun = ask_every(members, "begin")
                self.assertRegex(begun[2], rf"^INVALID_ARGUMENT .*worker:2 asks for {text}: give all the same")
                self.assertRegex(begun[2], "worker:0 and 1 more")
                for line in begun[:2]:
                    ok(line)
                for got in every(members[:2], "all_reduce 1 3"):
                    self.assertEqual((got["value"], got["contributors"]), (6, 2))
                self.assertRegex(members[2].ask("begin"), "^INVALID_ARGUMENT ")
                self.end(*members)
                self.job.stop()
                self.job = Job()

    @unittest.skipUnless(OPENSSL, "needs the openssl program")
    def test_data_links_that_differ_name_both_sides(self):
        tls = self.certificates()
        for some, other in (("encrypted", "authenticated"), ("authenticated", "encrypted")):
            with self.subTest(some):
                members = [self.opened(0, 3, MUSTER_TLS_DATA=some, **tls), self.opened(1, 3, MUSTER_TLS_DATA=some, **tls),
                           self.opened(2, 3, MUSTER_TLS_DATA=other, **tls)]
                begun = ask_every(members, "begin")
                self.assertRegex(begun[2], rf"^INVALID_ARGUMENT .*worker:2 asks for data links \(MUSTER_TLS_DATA\) {other}, "
                                           rf"worker:0 and 1 more have agreed on {some}: give all the same$")
                for line in begun[:2]:
                    ok(line)
                for got in every(members[:2], "all_reduce 1 3"):
                    self.assertEqual((got["value"], got["contributors"]), (6, 2))
                self.end(*members)
                self.job.stop()
                self.job = Job()

    @unittest.skipUnless(OPENSSL, "needs the openssl program")
    def test_a_joiner_whose_data_links_differ_is_refused_before_the_members_change(self):
        tls = self.certificates()
        members = [self.opened(rank, 2, MUSTER_TLS_DATA="authenticated", **tls) for rank in range(2)]
        every(members, "begin")
        epoch = members[0].ok("options")["epoch"]
        newcomer = self.opened(2, 3, **tls)
        self.assertRegex(newcomer.ask("begin"), "worker:2 asks for data links .* encrypted, worker:0 and 1 more have agreed on authenticated")
        newcomer.ok("close")
        every(members, "all_reduce 1 3")
        self.assertEqual([got["epoch"] for got in every(members, "options")], [epoch, epoch])
        self.end(*members, newcomer)

    def test_who_leaves_them_open_takes_those_of_rank_0(self):
        members = [self.opened(0, 2, "bytes_per_pack=1000 timeout_ms=60000 communication=RING reproducible=1"),
                   self.opened(1, 2)]
        every(members, "begin")
        for got in every(members, "options"):
            self.assertEqual((got["communication"], got["bytes_per_pack"], got["timeout_ms"], got["reproducible"]),
                             ("RING", 1000, 60000, 1))
        for got in every(members, "all_reduce 10 3 sum 5"):  # packs on both sides, or they would differ
            self.assertEqual((got["value"], got["contributors"]), (6, 2))
        self.end(*members)

    def test_what_a_pack_is_copied_to_is_mapped_by_the_others(self):
        members = [self.opened(rank, 2) for rank in range(2)]
        every(members, "begin")
        for _ in range(1000):  # as soon as they have heard of it
            got = every(members, "all_reduce_packed u8 100001 sum 5 1000000000")
            self.assertEqual({(one["first"], one["last"]) for one in got}, {(2, 2)})
            if all(one["input"] == "mapped" for one in got):
                break
        self.assertEqual({one["input"] for one in got}, {"mapped"})
        self.end(*members)

    def test_a_joiner_with_another_option_is_refused_before_the_members_change(self):
        members = [self.opened(0, 2, "bytes_per_pack=1000"), self.opened(1, 2)]
        every(members, "begin")
        epoch = members[0].ok("options")["epoch"]
        newcomer = self.opened(2, 3, "bytes_per_pack=2000")
        self.assertRegex(newcomer.ask("begin"), "^INVALID_ARGUMENT .*worker:2 asks for bytes_per_pack 2000, "
                                                "worker:0 and 1 more have agreed on 1000")
        newcomer.ok("close")
        every(members, "all_reduce 1 3")
        self.assertEqual([got["epoch"] for got in every(members, "options")], [epoch, epoch])
        self.end(*members, newcomer)

    def test_a_joiner_that_would_heal_a_fixed_size_is_refused_before_the_members_change(self):
        members = [self.opened(rank, 2, "fixed=1") for rank in range(2)]
        every(members, "begin")
        epoch = members[0].ok("options")["epoch"]
        newcomer = self.opened(2, 3)
        self.assertRegex(newcomer.ask("begin"), "^INVALID_ARGUMENT .*worker:2 asks for is_fixed_size false, "
                                                "worker:0 and 1 more have agreed on true: give all the same$")
        newcomer.ok("close")
        every(members, "all_reduce 1 3")
        self.assertEqual([got["epoch"] for got in every(members, "options")], [epoch, epoch])
        self.end(*members, newcomer)

    def test_a_joiner_that_leaves_them_open_takes_the_members(self):
        members = [self.opened(0, 1, "bytes_per_pack=1000 timeout_ms=60000")]
        members[0].ok("begin")
        newcomer = self.opened(1, 2)
        newcomer.tell("begin")
        for _ in range(10000):
            members[0].ok("all_reduce 1 1")
            members[0].ok("commit")
            if members[0].ok("begin")["size"] == 2:
                break
        ok(newcomer.hear())
        got = newcomer.ok("options")
        self.assertEqual((got["bytes_per_pack"], got["timeout_ms"]), (1000, 60000))
        self.end(*members, newcomer)


if __name__ == "__main__":
    unittest.main(verbosity=2)
