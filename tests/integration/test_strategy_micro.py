#!/usr/bin/env python3
"""Steps in micro-batches end bit by bit as without deaths: digits with other numbers of workers, with workers that are killed and come back,
and from a checkpoint; the same by --constant-batch; and the members of a sum, command by command. MUSTER_MICRO_KILLS: kills of the long run (4)."""
# Entries of ctest: Digits Constant Members
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import BINARIES, CLEAN, MUSTER, PATIENCE_S, PROGRAMS, Job, ask_every, each, every, ok

STEPPER = os.path.join(PROGRAMS, "stepper")
DATA = os.path.join(os.environ["MUSTER_SOURCE_DIR"], "examples", "data", "digits.csv")
KILLS = int(os.environ.get("MUSTER_MICRO_KILLS", 4))
WORKERS = 4
LIFE = ("sh", "-c", 'echo "life $RANK $$"; exec "$@"', "sh")
TOLD = re.compile(r"\[worker:\d+\] life (?P<rank>\d+) (?P<pid>\d+)|worker:(?P<killed>\d+) killed by SIGKILL|worker:(?P<back>\d+) rejoined|view 1 with")


def digits(steps, micro=8, batch=256):
    """micro None: as many micro-batches as the launcher says."""
    words = (os.path.join(BINARIES, "bin", "digits"), "--data", DATA, "--steps", str(steps), "--batch", str(batch))
    return words if micro is None else (*words, "--micro-batches", str(micro))


class Case(unittest.TestCase):
    def summary_of(self, *options, workers=WORKERS, program, **variables):
        done = subprocess.run([MUSTER, "run", "-n", str(workers), "--json", "-", *options, "--", *program], env=dict(CLEAN, **variables),
                              text=True, capture_output=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout.splitlines()[-1]), done.stdout + done.stderr

    def digest_of(self, summary, text, steps):
        """The one that all have who were there at the end: a worker that was killed may come back too late."""
        self.assertEqual((summary["steps"], summary["steps_lost"], len(set(summary["digests"]))), (steps, 0, 1), text)
        return summary["digests"][0]

    def undisturbed(self, steps, workers=WORKERS, **options):
        return self.digest_of(*self.summary_of(workers=workers, program=digits(steps, **options)), steps)


class Killing:
    """A job whose workers are killed by this script, one after the other. Those that are left are mostly three, of whom one dies as soon
    as its forerunner is back: with --min-members 3 the others wait meanwhile, so that few steps pass between two kills."""

    def __init__(self, program, kills, *options):
        self.rng = random.Random(kills)
        self.pids, self.members, self.text, self.kills = {}, set(), [], 0
        self.child = subprocess.Popen([MUSTER, "run", "-n", str(WORKERS), "--min-members", "3", "--max-restarts", str(kills), "--json", "-", *options,
                                       "--", *LIFE, *program], env=CLEAN, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        timer = threading.Timer(PATIENCE_S + 5 * kills, self.child.kill)
        timer.start()
        for line in self.child.stdout:
            self.text.append(line)
            self.hear(line)
            if self.kills < kills and len(self.members) >= (WORKERS if self.kills % 5 == 0 else 3):
                self.kill()
        timer.cancel()
        self.code = self.child.wait()
        self.child.stdout.close()

    def hear(self, line):
        found = TOLD.search(line)
        if not found:
            return
        if found["rank"]:
            self.pids[int(found["rank"])] = int(found["pid"])
        elif found["back"]:
            self.members.add(int(found["back"]))
        elif not found["killed"]:
            self.members = set(range(WORKERS))

    def kill(self):
        victim = self.rng.choice(sorted(self.members))
        self.members.discard(victim)
        self.kills += 1
        os.kill(self.pids[victim], signal.SIGKILL)


class Digits(Case):
    def test_the_same_bits_for_any_number_of_workers(self):
        expected = self.undisturbed(60)
        for workers in (1, 2, 3, 5):
            self.assertEqual(self.undisturbed(60, workers), expected, workers)
        self.assertNotEqual(self.undisturbed(60, micro=16), expected, "the order of the sums counts")

    def test_the_same_bits_with_kills(self):
        steps = 100 + 25 * KILLS
        job = Killing(digits(steps), KILLS)
        text = "".join(job.text)
        self.assertEqual((job.code, job.kills), (0, KILLS), text)
        summary = json.loads(job.text[-1])
        self.assertEqual(summary["kills"], KILLS, text)
        self.assertGreaterEqual(summary["rejoins"], KILLS - 2, text)
        digest = self.digest_of(summary, text, steps)
        undisturbed, _ = self.summary_of(program=digits(steps))
        print(f"{KILLS} kills in {steps} steps: digest {digest}, {summary['steps_lost']} steps lost, {summary['seconds']:.1f} s; "
              f"without {undisturbed['digests'][0]}, {undisturbed['seconds']:.1f} s")
        self.assertEqual(digest, undisturbed["digests"][0], text)

    def test_the_same_bits_when_two_die_within_a_sum(self):
        kills = ("worker:1@step=20,chunk=0", "worker:3@step=20,chunk=1", "worker:0@step=40,chunk=0", "worker:2@step=60")
        expected = self.undisturbed(80, micro=6, batch=240)
        for wire in ("auto", "tcp"):
            summary, text = self.summary_of(*(word for kill in kills for word in ("--kill", kill)), program=digits(80, micro=6, batch=240),
                                            MUSTER_WIRE=wire)
            self.assertEqual(summary["kills"], len(kills), text)
            self.assertIn("operation micro_batches_sum 20/0", text)
            self.assertEqual(self.digest_of(summary, text, 80), expected, text)

    def test_the_same_bits_from_a_checkpoint_on_other_workers(self):
        with tempfile.TemporaryDirectory() as folder:
            options = ("--checkpoint-dir", folder, "--checkpoint-every", "20")
            first, text = self.summary_of(*options, workers=3, program=digits(120))
            expected = self.digest_of(first, text, 120)
            second, text = self.summary_of(*options, workers=2, program=digits(120))
            self.assertIn("the job begins with the checkpoint of step ", text)
            self.assertEqual(self.digest_of(second, text, 120), expected, text)

    def test_a_checkpoint_of_other_micro_batches_is_refused_by_the_name_of_the_option(self):
        with tempfile.TemporaryDirectory() as folder:
            made = {micro: os.path.join(folder, str(micro)) for micro in (8, 0)}
            for micro, path in made.items():
                self.summary_of("--checkpoint-dir", path, "--checkpoint-every", "5", workers=1, program=digits(10, micro=micro))
            rows = ((8, ("--constant-batch", "4"), None, "8 micro-batches a step, this program 4; give the same number"),
                    (8, (), 16, "8 micro-batches a step, this program 16; give the same number"),
                    (8, (), 0, "8 micro-batches a step, this program none; give the same number"),
                    (0, ("--constant-batch", "4"), None, "no micro-batches, this program 4 a step; leave them out"))
            for saved, options, micro, text in rows:
                done = subprocess.run([MUSTER, "run", "-n", "2", "--checkpoint-dir", made[saved], *options, "--", *digits(20, micro=micro)], env=CLEAN,
                                      text=True, capture_output=True, timeout=PATIENCE_S, check=False)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertRegex(done.stderr, f"the checkpoint of step 10 in {made[saved]} does not fit: it has {text} "
                                 r"\(--constant-batch, slots=\), or name an empty folder")
                self.assertNotIn("restart 1 of", done.stderr)

    def preempt(self, folder, steps):
        """A job that is asked to stop when it has trained for a while: the step behind which it did, or None if it had ended before."""
        job = subprocess.Popen([MUSTER, "run", "-n", str(WORKERS), "--checkpoint-dir", folder, "--kill", "worker:1@step=20", "--json", "-", "--",
                                *digits(steps)], env=CLEAN, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.kill)
        text = []
        for line in job.stdout:
            text.append(line)
            if "worker:1 rejoined" in line:
                job.send_signal(signal.SIGTERM)
        self.assertIn(job.wait(), (0, 42), "".join(text))
        summary = json.loads(text[-1])
        self.assertEqual(summary["steps_lost"], 0, "".join(text))
        return summary["preempted"] and summary["preempted"]["step"]

    def test_the_same_bits_when_preempted_and_begun_again_on_other_workers(self):
        with tempfile.TemporaryDirectory() as parent:
            for attempt in range(9):  # a launcher that the system does not let run in time asks too late
                folder = os.path.join(parent, str(attempt))
                step = self.preempt(folder, 300)
                if step is not None:
                    break
            self.assertGreaterEqual(step or 0, 20)
            summary, text = self.summary_of("--checkpoint-dir", folder, workers=3, program=digits(300))
            self.assertIn(f"the job begins with the checkpoint of step {step}, view 1", text)
            self.assertEqual(self.digest_of(summary, text, 300), self.undisturbed(300, 2), text)


class Constant(Case):
    """`muster run --constant-batch`."""
    OPTION = ("--constant-batch", "8")

    def refused(self, *words, launcher=(MUSTER, "run", "-n", "2", *OPTION, "--"), **variables):
        done = subprocess.run([*launcher, *words], env=dict(CLEAN, **variables), text=True, capture_output=True, timeout=PATIENCE_S, check=False)
        self.assertNotEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def test_the_same_bits_for_any_number_of_workers(self):
        expected = self.undisturbed(60)
        for workers in (1, 3):
            summary = self.summary_of(*self.OPTION, workers=workers, program=digits(60, micro=None))
            self.assertEqual(self.digest_of(*summary, 60), expected, workers)

    def test_the_same_bits_with_kills(self):
        job = Killing(digits(150, micro=None), 2, *self.OPTION)
        text = "".join(job.text)
        self.assertEqual((job.code, job.kills), (0, 2), text)
        self.assertEqual(self.digest_of(json.loads(job.text[-1]), text, 150), self.undisturbed(150, 1), text)

    def test_a_program_without_micro_batches_does_not_begin_and_is_not_started_again(self):
        text = "MUSTER_CONSTANT_BATCH is 8, and this program has not opened micro-batches; call muster_micro_batches_open"
        for program in ((STEPPER, "3", "10"), digits(60, micro=0)):
            told = self.refused(*program)
            self.assertIn(text, told)
            self.assertIn("or run without --constant-batch", told)
            self.assertNotIn("restart 1 of", told)
            self.assertIn(text, self.refused(*program, launcher=(), MUSTER_CONSTANT_BATCH="8"))

    def test_a_program_with_other_micro_batches_is_refused(self):
        told = self.refused(*digits(60, micro=16))
        self.assertRegex(told, r"micro-batches of a step must be 8, as MUSTER_CONSTANT_BATCH \(muster run --constant-batch\) says, got 16 from this")
        self.assertNotIn("restart 1 of", told)
        self.assertIn("--micro-batches (or MUSTER_CONSTANT_BATCH) must be a divisor of --batch 100, got 8", self.refused(*digits(60, micro=None, batch=100)))

    def test_a_program_without_muster_is_told_that_the_option_does_nothing(self):
        for words, is_told in ((self.OPTION, True), ((), False)):
            done = subprocess.run([MUSTER, "run", "-n", "2", *words, "--", "true"], env=CLEAN, text=True, capture_output=True, timeout=PATIENCE_S,
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("--constant-batch 8 has done nothing: no worker has opened a strategy" in done.stderr, is_told, done.stderr)


class Members(Case):
    def setUp(self):
        self.job = Job()
        self.addCleanup(self.job.stop)

    def started(self, size, slots=11, count=5):
        members = self.job.members(size)
        every(members, f"micro {slots} {count}")
        every(members, "begin")
        return members

    def sum_of(self, members):
        """The bits that all have, and the slots of each."""
        shares = every(members, "micro_begin")
        self.assertEqual(sum(share["count"] for share in shares), shares[0]["total"])
        got = every(members, "micro_sum")
        self.assertEqual(len({one["bits"] for one in got}), 1)
        return got[0]["bits"], [int(share["count"]) for share in shares]

    def end(self, members):
        for member in members:
            member.child.stdin.close()
        for member in members:
            member.end()

    def test_one_dies_before_the_sum_and_the_others_do_its_slots(self):
        for count in (5, 300000):  # all at once, and in pieces
            members = self.started(3, count=count)
            expected, slots = self.sum_of(members)
            self.assertEqual(slots, [3, 4, 4])
            every(members, "commit")
            every(members, "begin")
            every(members, "micro_begin")
            early, late = members[:2]
            early.tell("micro_sum")
            members[2].kill()
            self.assertRegex(early.hear(), "^ABORTED micro_batches_sum: ")
            self.assertRegex(ask_every([late], "micro_sum")[0], "^ABORTED micro_batches_sum: ")
            self.assertEqual([got["step"] for got in every([early, late], "begin")], [2, 2])
            self.assertEqual(self.sum_of([early, late]), (expected, [5, 6]))
            self.end([early, late])
            self.job.stop()
            self.job.__init__()

    def test_two_begin_a_step_in_different_views(self):
        """They have other numbers of partial sums, 2 and 1, and both are in the same operations afterwards."""
        members = self.started(3, slots=8)
        expected, _ = self.sum_of(members)
        every(members, "commit")
        early, late, victim = members
        self.assertEqual(early.ok("begin")["size"], 3)
        victim.kill()
        self.assertRegex(late.ask("check_health 60"), "^UNAVAILABLE 1 of 3 ")  # it has seen the death
        self.assertEqual(late.ok("begin")["size"], 2)
        every([early, late], "micro_begin")
        for answer in ask_every([early, late], "micro_sum"):
            self.assertRegex(answer, "^ABORTED micro_batches_sum: ")
        self.assertEqual([(got["step"], got["size"]) for got in every([early, late], "begin")], [(2, 2), (2, 2)])
        self.assertEqual(self.sum_of([early, late]), (expected, [4, 4]))
        self.end([early, late])

    def test_more_members_than_slots(self):
        members = self.started(3, slots=2)
        bits, slots = self.sum_of(members)
        self.assertEqual(slots, [0, 1, 1])
        self.end(members)
        self.job.stop()
        self.job.__init__()
        alone = self.started(1, slots=2)
        self.assertEqual(self.sum_of(alone), (bits, [2]))
        self.end(alone)

    def test_who_has_other_options_is_refused_alone(self):
        for options, text in (("16 5", "slots must be the same on all workers: 16 here and 8 on the other side"),
                              ("8 6", "the buffers of a slot must be the same on all workers: 6_x_f32 here and 5_x_f32")):  # 2 members have parts of 3 elements of both 5 and 6
            members = self.job.members(3)
            each(members, lambda m: "micro " + (options if m.rank == 1 else "8 5"))
            got = ask_every(members, "begin")
            self.assertRegex(got[1], f"^INVALID_ARGUMENT .*{text}")
            others = [members[0], members[2]]
            for one in (got[0], got[2]):
                self.assertEqual(ok(one)["step"], 1)
            every(others, "begin")
            self.assertEqual(self.sum_of(others)[1], [4, 4])
            self.end(others)
            self.job.stop()
            self.job.__init__()


if __name__ == "__main__":
    unittest.main()
