#!/usr/bin/env python3
"""A strategy on device memory, in real processes: NCCL and CUDA are those of tests/fake_gpu."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import BINARIES, Job, ask_every, every, ok

FAKES = os.path.join(BINARIES, "lib", "fake_gpu")
COUNT = 5000


class Device(unittest.TestCase):
    VERSION = 23007

    def setUp(self):
        self.job = Job()
        self.addCleanup(self.job.stop)

    def variables(self, **more):
        return {"MUSTER_CUDA_LIBRARY": os.path.join(FAKES, "libcuda.so.1"),
                "MUSTER_NCCL_LIBRARY": os.path.join(FAKES, str(self.VERSION), "libnccl.so.2"),
                "ASAN_OPTIONS": "detect_leaks=0", **more}  # device memory is never given back here

    def opened(self, rank, size, options="", **variables):
        member = self.job.puppet(rank, size, **self.variables(**variables))
        member.ok(f"open 0 0 - {options}")
        member.ok("register total 8 1")
        return member

    def begun(self, size, options="", **variables):
        members = [self.opened(rank, size, options, **variables) for rank in range(size)]
        every(members, "begin")
        return members

    def sum(self, members, options=""):
        for got in every(members, f"device_all_reduce {COUNT} 3 sum 2 {options}"):
            self.assertEqual((got["value"], got["contributors"]), (3 * len(members), len(members)))

    def end(self, *members):
        every(members, "commit")
        for member in members:
            member.child.stdin.close()
        for member in members:
            member.end()

    # --- which memory goes where ---

    def test_auto_takes_device_memory_and_host_memory_as_they_come(self):
        members = self.begun(3)
        for got in every(members, "all_reduce 10 2"):
            self.assertEqual(got["value"], 6)
        self.sum(members)
        for got in every(members, "device_broadcast 100 7 1"):
            self.assertEqual(got["value"], 7)
        for got in every(members, "device_all_gather 100 4"):
            self.assertEqual(got["parts"], "4,4,4")
        for got in every(members, "all_reduce 10 2"):
            self.assertEqual(got["value"], 6)
        self.end(*members)

    def test_nccl_wants_device_memory(self):
        members = self.begun(2, "communication=NCCL")
        for line in ask_every(members, "all_reduce 10 2"):
            self.assertRegex(line, "^INVALID_ARGUMENT .*NCCL.*host memory: use AUTO, or RING for this call")
        for got in every(members, "all_reduce_packed f32 4 sum 2 0 0 communication=RING"):
            self.assertIn("first", got)
        self.sum(members)
        self.end(*members)

    def test_ring_copies_device_memory_to_the_host(self):
        members = self.begun(2, "communication=RING", MUSTER_NCCL_LIBRARY="/nowhere/libnccl.so.2")
        self.sum(members)
        for line in ask_every(members, f"device_all_reduce {COUNT} 3 sum 1 communication=NCCL"):
            self.assertRegex(line, "^UNAVAILABLE .*/nowhere/libnccl.so.2")
        self.end(*members)

    # --- without a device ---

    def test_nccl_without_a_device_says_what_is_missing_at_open(self):
        for variables, text in (({"FAKE_CUDA_NO_DEVICE": 1}, "no.*device"),
                                ({"MUSTER_CUDA_LIBRARY": "/nowhere/libcuda.so.1"}, "/nowhere/libcuda.so.1"),
                                ({"MUSTER_NCCL_LIBRARY": "/nowhere/libnccl.so.2"}, "/nowhere/libnccl.so.2")):
            member = self.job.puppet(0, 1, **self.variables(**variables))
            self.assertRegex(member.ask("open 0 0 - communication=NCCL"),
                             rf"^UNAVAILABLE communication NCCL \(.*AUTO or RING\): .*{text}")

    def test_auto_without_a_device_does_without(self):
        members = self.begun(2, MUSTER_CUDA_LIBRARY="/nowhere/libcuda.so.1")
        for got in every(members, "all_reduce 10 2"):
            self.assertEqual(got["value"], 4)
        self.end(*members)

    def test_where_the_members_have_agreed_on_nccl_a_member_without_gives_up_and_the_others_go_on(self):
        members = [self.opened(0, 3, "communication=NCCL"), self.opened(1, 3), self.opened(2, 3, FAKE_CUDA_NO_DEVICE=1)]
        begun = ask_every(members, "begin")
        self.assertRegex(begun[2], r"^UNAVAILABLE communication NCCL \(.*AUTO or RING\): ")
        for line in begun[:2]:
            ok(line)
        self.sum(members[:2])
        self.end(*members[:2])

    # --- deaths, and what may fail ---

    def again(self, members):
        """The step that ended ABORTED, with those who are left."""
        self.assertEqual({got["size"] for got in every(members, "begin")}, {len(members)})
        self.sum(members)

    def end_of_call(self, survivors):
        """All alike: the dead one was in it, or its death was known before the call came to the device."""
        lines = [member.hear() for member in survivors]
        if lines[0].startswith("ok"):
            self.assertEqual([ok(line)["contributors"] for line in lines], [len(survivors)] * len(survivors))
            every(survivors, "commit")
        else:
            for line in lines:
                self.assertRegex(line, "^ABORTED all_reduce: ")

    def test_a_death_in_the_middle_ends_the_call_alike_on_all_and_the_step_runs_again(self):
        members = self.begun(3)
        self.sum(members)
        for member in members[:2]:
            member.tell(f"device_all_reduce {COUNT} 3")
        members[2].kill()
        self.end_of_call(members[:2])
        self.again(members[:2])
        newcomer = self.opened(2, 3)
        newcomer.tell("begin")
        for _ in range(10000):
            every(members[:2], "commit")
            if every(members[:2], "begin")[0]["size"] == 3:
                break
        ok(newcomer.hear())
        self.sum([*members[:2], newcomer])
        self.end(*members[:2], newcomer)

    def test_by_copies_in_host_memory_a_death_costs_no_step(self):
        members = self.begun(3, "communication=RING", FAKE_CUDA_GUARDED=1)
        self.sum(members)
        for member in members[:2]:
            member.tell(f"device_all_reduce {COUNT} 3")
        members[2].kill()
        got = [ok(member.hear()) for member in members[:2]]
        self.assertEqual(got[0], got[1])
        self.assertEqual(got[0]["value"], 3 * got[0]["contributors"])
        self.sum(members[:2])
        self.end(*members[:2])

    def test_a_death_on_the_device_aborts_it_first(self):
        members = self.begun(3)
        self.sum(members)
        members[2].ok("knob cuda hold 1")  # its stream stands still: the others' kernels wait for it
        for member in members:
            member.tell(f"device_all_reduce {COUNT} 3")
        members[2].kill()
        self.end_of_call(members[:2])
        self.again(members[:2])
        self.end(*members[:2])

    def failing(self, *knobs, options="", **variables):
        """Member 1 has the fault in one call, which ends badly on both; the step runs again."""
        members = self.begun(2, options, **variables)
        self.sum(members)
        for knob in knobs:
            members[1].ok(f"knob nccl {knob}")
        return members

    def test_an_error_after_some_operations_is_one_of_all(self):
        members = self.failing("error_after 2")
        lines = ask_every(members, f"device_all_reduce {COUNT} 3 sum 8")
        for line in lines:
            self.assertRegex(line, "^(UNAVAILABLE|ABORTED) all_reduce: ")
        members[1].ok("knob nccl error_after 0")
        self.again(members)
        self.end(*members)

    def test_an_abort_that_never_returns_holds_nobody_up(self):
        members = self.failing("abort_blocks 1", "error_after 1")
        for line in ask_every(members, f"device_all_reduce {COUNT} 3"):
            self.assertRegex(line, "^(UNAVAILABLE|ABORTED) all_reduce: ")
        members[1].ok("knob nccl error_after 0")
        self.again(members)
        members[1].ok("knob nccl abort_blocks 0")
        self.end(*members)

    def test_an_init_that_fails_is_tried_again(self):
        members = self.begun(2, "communication=NCCL")
        every(members, "knob nccl init_fails 1")
        self.sum(members)
        self.end(*members)

    def test_a_lost_callback_is_found(self):
        members = self.failing()
        members[1].ok("knob cuda lost_callbacks 1")
        self.sum(members)
        self.end(*members)

    def test_calls_that_differ_are_told_both_sides(self):
        members = self.begun(2)
        members[0].tell(f"device_all_reduce {COUNT} 3 sum")
        members[1].tell(f"device_all_reduce {COUNT} 3 max")
        for member in members:
            self.assertRegex(member.hear(), r"^INVALID_ARGUMENT all_reduce: .*sum.*max|max.*sum")
        self.again(members)
        self.end(*members)


class OldDevice(Device):
    """Without revoke, shrink and grow."""
    VERSION = 21803


if __name__ == "__main__":
    unittest.main(verbosity=2)
