#!/usr/bin/env python3
"""Training state in device memory, in real processes: shared, fetched by joiners, saved and restored. CUDA is that of
tests/fake_gpu, whose device memory kills a process that touches it without the driver."""
import os
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import BINARIES, Job, ask_every, every, ok

FAKES = os.path.join(BINARIES, "lib", "fake_gpu")
COUNT = (1 << 20) + 3  # elements of 8 bytes: more than two pieces, 33 chunks


class DeviceState(unittest.TestCase):
    def setUp(self):
        self.start_job()

    def start_job(self):
        self.job = Job()
        self.addCleanup(self.job.stop)

    def opened(self, rank, size, **variables):
        """Its state is one tensor on the device and one on the host; their values are 1 + rank."""
        member = self.job.puppet(rank, size, **{
            "MUSTER_CUDA_LIBRARY": os.path.join(FAKES, "libcuda.so.1"),
            "MUSTER_NCCL_LIBRARY": os.path.join(FAKES, "23007", "libnccl.so.2"), "FAKE_CUDA_GUARDED": 1,
            "ASAN_OPTIONS": "detect_leaks=0", **variables})
        member.ok("open 0")
        member.ok(f"device_register weights {COUNT} {1 + rank}")
        member.ok(f"register step 8 {1 + rank}")
        return member

    def begun(self, size, **variables):
        members = [self.opened(rank, size, **variables) for rank in range(size)]
        every(members, "begin")
        return members

    def train(self, members, value, change="device_set"):
        """One step, which makes all weights `value`."""
        every(members, f"{change} {value}")
        every(members, "commit")

    def joined(self, members, joiner, value):
        """Steps until the joiner takes part in one; it has begun that one."""
        while True:
            begun = every(members, "begin")
            if begun[0]["joined"] > 0:
                break
            self.train(members, value)
        self.assertEqual(ok(joiner.hear())["step"], begun[0]["step"])
        return [*members, joiner]

    def check(self, members, value):
        self.assertEqual([got["value"] for got in every(members, "device_get")], [value] * len(members))
        self.assertEqual(len({got["digest"] for got in every(members, "digest")}), 1)
        for got in every(members, "device_copied"):
            self.assertEqual(got["misuse"], 0)

    def end(self, members):
        every(members, "commit")
        for member in members:
            member.child.stdin.close()
        for member in members:
            member.end()

    def test_a_new_job_has_the_state_of_rank_0(self):
        for size in (1, 2, 3):  # three on one host give it in two rounds
            with self.subTest(size=size):
                members = self.begun(size)
                self.check(members, 1)
                self.end(members)
                self.start_job()

    def test_a_joiner_has_the_state_of_the_others(self):
        members = self.begun(3)
        self.train(members, 5)
        every(members, "begin")
        members.pop().kill()
        self.train(members, 6)
        joiner = self.opened(2, 3)
        joiner.tell("begin")
        members = self.joined(members, joiner, 6)
        self.check(members, 6)
        self.end(members)

    def test_work_on_the_programs_stream_belongs_to_the_step(self):
        """The default stream stands still until somebody waits for it."""
        members = self.begun(2, FAKE_CUDA_LAZY=1)
        self.train(members, 5)
        every(members, "begin")
        members.pop().kill()
        self.train(members, 6)
        joiner = self.opened(1, 2)
        joiner.tell("begin")
        members = self.joined(members, joiner, 6)
        self.check(members, 6)
        self.end(members)

    def test_a_joiner_fetches_ahead_what_the_steps_leave_as_it_is(self):
        members = self.begun(2)
        self.train(members, 5, "device_change")
        every(members, "begin")
        members.pop().kill()
        self.train(members, 6, "device_change")
        every(members, "begin")
        joiner = self.opened(1, 2)
        joiner.tell("begin")
        every(members, "change step 7")
        every(members, "commit")
        while True:
            begun = every(members, "begin")
            if begun[0]["joined"] > 0:
                break
            every(members, "change step 7")
            every(members, "commit")
        ok(joiner.hear())
        members.append(joiner)
        self.check(members, 6)
        self.assertEqual([got["value"] for got in every(members, "get step")], [7, 7])
        self.end(members)

    def test_checkpoints_hold_it_and_a_new_job_begins_from_it(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        saved = {"MUSTER_CHECKPOINT_DIR": folder, "MUSTER_CHECKPOINT_EVERY": 1}
        members = self.begun(3, **saved)
        for value in (4, 5):
            self.train(members, value)
            every(members, "begin")
        self.train(members, 6)
        for member in members:
            member.child.stdin.close()  # a program that ends saves its last step
        for member in members:
            member.end()
        self.start_job()
        members = [self.opened(rank, 2, **saved) for rank in range(2)]
        self.assertEqual([(got["step"], got["restored"]) for got in every(members, "begin")], [(4, 1)] * 2)
        self.check(members, 6)
        self.end(members)

    def test_a_member_whose_device_fails_ends_and_the_others_go_on(self):
        members = self.begun(3)
        self.train(members, 5)
        members[1].ok("knob cuda copy_fails 1000000")
        joiner = self.opened(3, 4)
        joiner.tell("begin")
        for _ in range(1000):
            lines = ask_every(members, "begin")
            if not lines[1].startswith("ok "):
                break
            every(members, "commit")
        self.assertRegex(lines[1], "^UNAVAILABLE the device of this process has failed: copy from the device: CUDA error 719")
        members.pop(1).kill()
        if not all(line.startswith("ok ") and ok(line)["size"] == 3 for line in lines[::2]):
            every(members, "commit")
            members = self.joined(members, joiner, 5)
        else:
            ok(joiner.hear())
            members.append(joiner)
        self.check(members, 5)
        self.end(members)

    def test_it_may_be_on_several_devices(self):
        member = self.opened(0, 1, FAKE_CUDA_DEVICES=2)
        member.ok("knob cuda ordinal 1")
        member.ok("device_register more")
        member.ok("begin")
        self.end([member])

    def test_a_device_that_cannot_be_opened_refuses_the_tensor(self):
        member = self.opened(0, 1)
        member.discard()
        member = self.job.puppet(0, 1, MUSTER_CUDA_LIBRARY=os.path.join(FAKES, "libcuda.so.1"), FAKE_CUDA_PINNED_FAILS=1)
        member.ok("open 0")
        self.assertRegex(member.ask("device_register weights"),
                         "^RESOURCE_EXHAUSTED register weights: 1048576 bytes of pinned memory: CUDA error 2")


if __name__ == "__main__":
    unittest.main(verbosity=2)
