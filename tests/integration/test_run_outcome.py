#!/usr/bin/env python3
"""How `muster run` ends: when the job has ended for some of its workers, and what their results say together."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
import cases
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS, Job

STEPPER = os.path.join(PROGRAMS, "stepper")


def start(test, *args, script, **variables):
    child = subprocess.Popen([MUSTER, "run", *args, "--", "sh", "-c", script], text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env=dict(CLEAN, STEPPER=STEPPER, **variables))
    test.addCleanup(child.communicate)
    test.addCleanup(child.kill)
    return child


def run(*args, script, **variables):
    return subprocess.run([MUSTER, "run", *args, "--", "sh", "-c", script], text=True, capture_output=True,
                          env=dict(CLEAN, STEPPER=STEPPER, **variables), timeout=PATIENCE_S, check=False)


def lines_until(child, count, pattern):
    """Output lines that match, when there are `count` of them."""
    found = []
    while len(found) < count:
        line = child.stdout.readline()
        assert line, (found, child.stderr.read())
        found += re.findall(pattern, line)
    return found


def reporting(*reports):
    """A worker that reports, by rank, and ends with 0."""
    cases = " ".join(f"{rank}) echo '{json.dumps(dict(report='result', **report))}' >&3;;"
                     for rank, report in enumerate(reports))
    return f"case $RANK in {cases} esac"


class Ended(unittest.TestCase):
    HOLD = ('[ $RANK.$MUSTER_RESTART_COUNT = 0.0 ] && { $STEPPER 100 && echo has left; exit; }; '
            '[ $MUSTER_RESTART_COUNT = 0 ] && export STEPPER_HOLD=/nowhere; echo pid $$; exec $STEPPER 100')

    def test_who_is_killed_when_one_has_finished_comes_back_too_late(self):
        child = start(self, "-n", "3", "--json", "-", script=self.HOLD)
        seen = lines_until(child, 6, r"pid \d+|has left|total 100")
        for word in seen:
            if word.startswith("pid"):
                os.kill(int(word.split()[1]), signal.SIGKILL)
        out, err = child.communicate(timeout=PATIENCE_S)
        result = json.loads(out.splitlines()[-1])
        self.assertEqual((child.returncode, result["exit_code"]), (0, 0), err)
        self.assertEqual(err.count("came back too late"), 2, err)
        self.assertEqual((result["steps"], result["restarts"], result["identical"]), (100, 2, True))
        self.assertEqual(len(result["digests"]), 1)
        self.assertNotIn("total", out)  # nobody has trained again

    def test_who_was_rank_0_of_the_last_step_and_came_back_too_late_has_not_done_its_end(self):
        done = run("-n", "2", "--json", "-", script=(
            "case $RANK.$MUSTER_RESTART_COUNT in 0.0) echo '{\"report\":\"progress\",\"step\":9}' >&3; kill -9 $$;; "
            "0.1) echo '{\"report\":\"over\"}' >&3;; *) echo '{\"report\":\"result\",\"steps\":9,\"digest\":\"aa\"}' >&3;; esac"))
        result = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual((done.returncode, result["exit_code"], result["tasks"][0]["died_after_step"]), (1, 1, 9), done.stderr)
        self.assertIn("the end of rank 0 may be missing: worker:0 died after the last step, 9, before it closed", done.stderr)

    def test_a_job_that_went_on_after_an_early_leave_begins_anew(self):
        child = start(self, "-n", "3", "--json", "-", "--min-members", "2", "--min-members-timeout", "1", script=(
            '[ $RANK = 0 ] && { $STEPPER 50 && echo has left; exit; }; '
            '[ $MUSTER_RESTART_COUNT = 0 ] && export STEPPER_HOLD=/nowhere; echo pid $$; exec $STEPPER 100'))
        for word in lines_until(child, 6, r"pid \d+|has left|total \d+"):
            if word.startswith("pid"):
                os.kill(int(word.split()[1]), signal.SIGKILL)
        out, err = child.communicate(timeout=PATIENCE_S)
        result = json.loads(out.splitlines()[-1])
        self.assertEqual(child.returncode, 0, err)
        self.assertEqual((result["steps"], result["identical"], len(result["digests"])), (100, True, 2), err)
        self.assertEqual((out.count("total 100"), err.count("too late")), (2, 0), err)
        self.assertIn("worker:0 had left after step 50", err)

    def test_a_job_that_failed_on_all_workers_begins_anew(self):
        done = run("-n", "3", "--json", "-", script=(
            '[ $MUSTER_RESTART_COUNT = 0 ] && exec $STEPPER 50 8 total $((RANK == 1 ? 3 : 4)); exec $STEPPER 50'))
        result = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((result["steps"], result["identical"]), (50, True), done.stderr)
        self.assertRegex(done.stdout, r"(?m)^\[worker:\d\] total 50$")  # who comes first may have done it alone

    def test_a_job_of_which_no_worker_ended_with_0_is_no_success(self):
        done = run("-n", "2", "--json", "-", script='$STEPPER 20; exit 3')
        result = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual((done.returncode, result["exit_code"]), (3, 3), done.stderr)
        self.assertIn("first failure", done.stderr)
        self.assertIn("exited with code 3", done.stderr)


    def test_a_job_whose_workers_are_all_killed_says_that_it_begins_anew(self):
        child = start(self, "-n", "3", "--json", "-", script=(
            'echo pid $$; [ $MUSTER_RESTART_COUNT = 0 ] && export STEPPER_HOLD=/nowhere; exec $STEPPER 100'))
        pids = [int(word.split()[1]) for word in lines_until(child, 6, r"pid \d+|total 100") if word.startswith("pid")]
        for number in (signal.SIGSTOP, signal.SIGKILL):  # one that lives on between two kills would recover alone
            for pid in pids:
                os.kill(pid, number)
        out, err = child.communicate(timeout=PATIENCE_S)
        result = json.loads(out.splitlines()[-1])
        self.assertEqual((child.returncode, result["exit_code"]), (0, 0), err)
        self.assertEqual(err.count("the job begins anew, for none of its members was left"), 1, err)
        step = int(re.search(r"it stood at step (\d+) as last reported, ", err).group(1))
        self.assertGreater(step, 0, err)
        self.assertEqual((result["steps_lost"], result["begun_anew_at"]), (step, [step]), err)
        self.assertEqual((result["recovery_ms"]["max"], result["recovery_ms_max"]), (None, None), err)
        self.assertRegex(err, rf"3 kills, the job had to begin anew when it stood at step {step}, {step} steps? lost, 0 survivors")

    def test_who_ends_with_0_in_a_step_has_left_and_is_named(self):
        for where, words in (("begin:50", "worker:1 left in step 50 with exit code 0, without commit or close"),
                             ("commit:50", "worker:1 left after step 50 with exit code 0, before the job's end")):
            with self.subTest(where=where):
                done = run("-n", "3", "--json", "-", script="exec $STEPPER 400", STEPPER_QUITS=where)
                result = json.loads(done.stdout.splitlines()[-1])
                self.assertEqual((done.returncode, result["steps"], result["restarts"], result["kills"]), (0, 400, 0, 0), done.stderr)
                self.assertEqual((result["recovery_ms"]["max"], result["steps_lost"], result["identical"]), (None, 0, True), done.stderr)
                self.assertIn(words, done.stderr)
                self.assertEqual(done.stderr.count("worker:1 ended with exit code 0 in step 50, which it had begun"), where == "begin:50", done.stderr)
                self.assertEqual(result["tasks"][1]["left_in_step" if where == "begin:50" else "left_after_step"], 50)

    def test_who_closes_before_the_others_has_left(self):
        done = run("-n", "3", script="[ $RANK = 1 ] && exec $STEPPER 50; exec $STEPPER 400")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall(r"worker:1 closed after step 50 and has left, view \d+ with 2 members goes on", done.stderr)), 1,
                         done.stderr)
        self.assertEqual(done.stderr.count(" has left"), 1, done.stderr)  # the others are done

    def test_who_ends_by_underscore_exit_is_named_too(self):
        for where, place, key in (("begin:50", "in", "left_in_step"), ("commit:50", "after", "left_after_step")):
            with self.subTest(where=where):
                done = run("-n", "3", "--json", "-", script="exec $STEPPER 400", STEPPER_QUITS=where, STEPPER_QUITS_BY="_exit")
                result = json.loads(done.stdout.splitlines()[-1])
                self.assertEqual((done.returncode, result["steps"], result["restarts"]), (0, 400, 0), done.stderr)
                self.assertIn(f"worker:1 ended with exit code 0 and without close, by _exit, {place} step 50: it has left", done.stderr)
                self.assertIn(f"worker:1 left {place} step 50 with exit code 0, by _exit and without close", done.stderr)
                self.assertEqual(result["tasks"][1][key], 50)

    def test_a_job_that_all_workers_leave_in_their_work_is_no_success(self):
        for where, way in (("begin:50", {}), ("begin:50", {"STEPPER_QUITS_BY": "_exit"}), ("commit:50", {"STEPPER_QUITS_BY": "_exit"})):
            with self.subTest(where=where, way=way):
                done = run("-n", "2", "--json", "-", script="exec $STEPPER 400", STEPPER_QUITS=where, STEPPER_ALL_QUIT="1", **way)
                result = json.loads(done.stdout.splitlines()[-1])
                self.assertEqual((done.returncode, result["exit_code"], result["identical"]), (1, 1, None), done.stderr)
                self.assertIn("no worker has done the job's work: those with the most steps have ended with 0 without close, "
                              "exit code of this run 1", done.stderr)

    def test_nor_one_that_all_leave_before_the_last_step_that_they_have_named(self):
        done = run("-n", "2", "--json", "-", script="exec $STEPPER 40", STEPPER_QUITS="commit:30", STEPPER_ALL_QUIT="1", STEPPER_UNTIL="1")
        result = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual((done.returncode, [task["left_after_step"] for task in result["tasks"]]), (1, [30, 30]), done.stderr)
        self.assertIn("no worker has done the job's work: those with the most steps have ended with 0 without close", done.stderr)
        done = run("-n", "2", script="exec $STEPPER 40", STEPPER_QUITS="commit:40", STEPPER_ALL_QUIT="1", STEPPER_UNTIL="1")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_an_end_with_0_behind_a_commit_of_all_says_that_the_work_is_done(self):
        done = run("-n", "2", "--json", "-", script="exec $STEPPER 40", STEPPER_QUITS="commit:40", STEPPER_ALL_QUIT="1")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_who_ends_with_0_without_close_behind_its_work_is_not_named(self):
        done = run("-n", "3", "--json", "-", script="exec $STEPPER 40", STEPPER_QUITS="commit:40")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("with exit code 0", done.stderr)


class Errors(unittest.TestCase):
    """A worker has an error of its own, and closes on its way out."""

    def check(self, child):
        out, err = child.communicate(timeout=PATIENCE_S)
        result = json.loads(out.splitlines()[-1])
        self.assertEqual((child.returncode, result["exit_code"]), (0, 0), err)
        self.assertEqual((result["steps"], result["identical"], len(result["digests"])), (400, True, result["workers"]), err)
        self.assertNotIn("too late", err)
        self.assertNotIn("had left", err)
        return result, err

    def test_the_others_go_on_and_it_is_started_again(self):
        for where in ("begin", "all_reduce"):
            with self.subTest(where=where):
                result, err = self.check(start(self, "-n", "3", "--json", "-", script="exec $STEPPER 400", STEPPER_HURRY="/nowhere", STEPPER_ERRS=f"{where}:50"))
                self.assertEqual((result["restarts"], result["survivors_restarted"]), (1, 0), err)

    def test_the_job_is_not_over_when_the_last_one_dies_in_the_same_step(self):
        for where in ("begin", "all_reduce"):
            with self.subTest(where=where):
                result, err = self.check(start(self, "-n", "2", "--json", "-", "--kill", "0@step=50", script="exec $STEPPER 400",
                                               STEPPER_HURRY="/nowhere", STEPPER_ERRS=f"{where}:50"))
                self.assertEqual((result["restarts"], result["kills"]), (2, 1), err)

    def test_an_exit_code_of_0_in_the_middle_of_a_step_is_not_believed(self):
        result, err = self.check(start(self, "-n", "2", "--json", "-", script="$STEPPER 400; exit 0", STEPPER_HURRY="/nowhere", STEPPER_ERRS="all_reduce:50"))
        self.assertEqual(result["restarts"], 1, err)
        self.assertIn("worker:1 gives up in step 50: closed in step 50 before its commit", err)


class Skipped(unittest.TestCase):
    def test_a_result_without_an_operation_of_the_others_is_no_success(self):
        done = run("-n", "3", "--json", "-", "--max-restarts", "0", script="exec $STEPPER 40", STEPPER_SKIPS="begin:20")
        result = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual((done.returncode, result["tasks"][1]["skipped_step"], result["tasks"][1]["exit_code"]), (1, 20, 1), done.stderr)
        self.assertIn("worker:1 committed step 20 without an operation that others waited for: all members must", done.stderr)
        self.assertIn("the result is not that of all: worker:1 committed step 20 without an operation", done.stderr)

    def test_its_checkpoint_is_not_told_as_that_of_all(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run("-n", "3", "--max-restarts", "0", "--checkpoint-dir", folder, script="exec $STEPPER 20", STEPPER_SKIPS="begin:20")
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertNotRegex(done.stderr, r"step 20 is saved in \S+\n")
            if any("-000000000020-" in name and name.endswith(".manifest") for name in os.listdir(folder)):
                self.assertRegex(done.stderr, r"step 20 is saved in \S+ with a state that is not that of all: delete \S+/checkpoint-000000000020-\* before")


    def test_nor_in_the_last_step_where_it_leaves_at_once(self):
        for step in ("1", "20"):
            done = run("-n", "3", "--json", "-", "--max-restarts", "0", script=f"exec $STEPPER {step}", STEPPER_SKIPS=f"begin:{step}")
            tasks = json.loads(done.stdout.splitlines()[-1])["tasks"]
            # The one that left it out is told if it is still there; otherwise the others are.
            told = {key: [task["task"] for task in tasks if task.get(key) == int(step)] for key in ("skipped_step", "left_out_step")}
            self.assertIn(told, ({"skipped_step": ["worker:1"], "left_out_step": []}, {"skipped_step": [], "left_out_step": ["worker:0", "worker:2"]}))
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("the result is not that of all: ", done.stderr)


class WithoutClose(unittest.TestCase):
    def test_a_last_step_that_nobody_saves_is_told_with_its_remedy(self):
        with tempfile.TemporaryDirectory() as folder:
            words = ("-n", "2", "--checkpoint-dir", os.path.join(folder, "c"))
            done = run(*words, script="exec $STEPPER 40", STEPPER_QUITS="commit:40", STEPPER_ALL_QUIT="1")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"step 40 is not saved: \S+/c has no checkpoint, and the same command begins with step 1; "
                                      r"no worker has closed its strategy, which saves the last step; exit code of this run 1\n")


class TakingPart(unittest.TestCase):
    def test_the_summary_says_how_many_tasks_took_part(self):
        done = run("-n", "2", "--json", "-", script="exec $STEPPER 20")
        self.assertEqual((done.returncode, json.loads(done.stdout.splitlines()[-1])["took_part"]), (0, 2), done.stderr)
        self.assertIn("2 of 2 tasks took part", done.stderr)

    def test_a_launcher_whose_workers_committed_nothing_is_no_success(self):
        for count, script in ((2, "echo '{\"report\":\"over\"}' >&3; exit 1"), (1, "exec $STEPPER 0"),
                              (3, "echo '{\"report\":\"view\",\"epoch\":1,\"members\":3}' >&3; exit 0")):
            done = run("-n", str(count), "--json", "-", script=script)
            self.assertNotEqual(done.returncode, 0, (script, done.stderr))
            self.assertEqual(json.loads(done.stdout.splitlines()[-1])["exit_code"], done.returncode)
            self.assertIn(f"0 of {count} task{'s' * (count > 1)} took part", done.stderr)

    def test_a_worker_that_goes_into_the_background_has_not_done_its_work(self):
        done = run("-n", "2", "--json", "-", script="sleep 600 &")
        self.assertEqual((done.returncode, json.loads(done.stdout)["exit_code"]), (1, 1), done.stderr)
        self.assertIn("worker:1 ended with exit code 0 before it opened a strategy, while processes that it had started still ran", done.stderr)
        self.assertIn("worker:0 has not done its work: processes that it had started still ran", done.stderr)
        done = run("-n", "2", script="exec 3>&-; sleep 600 &")  # a helper, which does not report
        self.assertEqual((done.returncode, done.stderr.count("still ran")), (0, 0), done.stderr)

    def test_programs_without_muster_are_judged_by_their_codes(self):
        done = run("-n", "2", script="exit 0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("took part", done.stderr)

    def test_a_state_of_another_shape_fails_the_run_with_its_text(self):
        for script in ("exec $STEPPER 20 $((RANK == 1 ? 9 : 8))",  # from the start, or as it comes back
                       "[ $RANK.$MUSTER_RESTART_COUNT = 1.0 ] && export STEPPER_DIES=1; "
                       "[ $RANK.$MUSTER_RESTART_COUNT = 1.1 ] || exec $STEPPER 3000 8; $STEPPER 3000 9; code=$?; : > $STEPPER_HOLD; exit $code"):
            with tempfile.TemporaryDirectory() as where:
                hold = {"STEPPER_HOLD": f"{where}/go"} if "HOLD" in script else {}
                done = run("-n", "2", "--json", "-", script=script, **hold)
            result = json.loads(done.stdout.splitlines()[-1])
            self.assertEqual((done.returncode, result["exit_code"], result["first_failure"]["task"]), (1, 1, "worker:1"), done.stderr)
            self.assertRegex(done.stderr, r"reason +.*total")
            self.assertIn("total", done.stdout)  # worker:0 ends its work
            self.assertEqual(result["restarts"], 1 if hold else 0)
            self.assertNotIn("too late", done.stderr)

    def test_workers_that_die_in_turn_and_never_report_are_told_of_the_gang(self):
        words = "no worker has opened a strategy before its end"
        done = run("-n", "3", "--max-restarts", "1", script="sleep 0.$RANK; exit 3")
        self.assertEqual((done.returncode, done.stderr.count(f"[muster] {words}")), (3, 1), done.stderr)
        self.assertRegex(done.stderr, f"reason +{words}, see the output")  # a program that fails early may well use muster
        self.assertEqual(done.stderr.count("give --restart all"), done.stderr.count("only if these programs do not use muster, give --restart all"))
        for count, options, script in (("3", (), '[ $RANK = 1 ] && [ $MUSTER_RESTART_COUNT = 0 ] && exit 3; sleep 0.3'),
                                       ("3", ("--restart", "all"), "exit 3"), ("1", (), "exit 3"),
                                       ("2", (), "echo '{\"report\":\"progress\",\"step\":1}' >&3; exit 3")):
            done = run("-n", count, "--max-restarts", "1", *options, script=script)
            self.assertNotIn(words, done.stderr)


class Weights(unittest.TestCase):
    def test_different_weights_are_never_a_success(self):
        for option in ([], ["--quiet"]):
            done = run("-n", "3", "--json", "-", *option, script=reporting(
                dict(steps=9, digest="aaaa"), dict(steps=9, digest="bbbb"), dict(steps=9, digest="aaaa")))
            result = json.loads(done.stdout)
            self.assertEqual((done.returncode, result["exit_code"], result["identical"]), (6, 6, False))
            self.assertEqual(result["digests"], ["aaaa", "bbbb", "aaaa"])
            self.assertIn("WEIGHTS DIFFER between workers after step 9, exit code of this run 6", done.stderr)
            for text in ("worker:0 aaaa", "worker:1 bbbb", "worker:2 aaaa"):
                self.assertIn(text, done.stderr)
        page = subprocess.run([MUSTER, "help", "exit-codes"], text=True, capture_output=True, timeout=PATIENCE_S,
                              check=True).stdout
        self.assertRegex(page, r"(?m)^ +6 .*weights differ")

    def test_a_failure_keeps_its_code(self):
        done = run("-n", "2", "--max-restarts", "0", script=reporting(
            dict(steps=9, digest="aaaa"), dict(steps=9, digest="bbbb")) + "; exit $((RANK * 5))")
        self.assertEqual(done.returncode, 5)
        self.assertIn("WEIGHTS DIFFER", done.stderr)

    def test_who_left_early_is_not_compared(self):
        done = run("-n", "2", "--json", "-", script=reporting(dict(steps=4, digest="aaaa"), dict(steps=9, digest="bbbb")))
        result = json.loads(done.stdout)
        self.assertEqual((done.returncode, result["steps"], result["identical"], result["digests"]), (0, 9, True, ["bbbb"]))
        self.assertEqual([task["digest"] for task in result["tasks"]], ["aaaa", "bbbb"])
        self.assertIn("worker:0 had left after step 4", done.stderr)


class ManyLaunchers(unittest.TestCase):
    def setUp(self):
        self.job = Job()
        self.addCleanup(self.job.stop)

    def launcher(self, node, *args, script):
        return start(self, "--nnodes", "2", "--nproc-per-node", "2", "--node-rank", str(node), "--job", "two", "--registry",
                     self.job.address, "--master-addr", "node0", "--master-port", "29500", "--json", "-", *args, script=script)

    def test_one_job_survives_kills_on_both_machines(self):
        both = [self.launcher(0, "--kill", "1@step=50", script="exec $STEPPER 2000"),
                self.launcher(1, "--kill", "worker:2@step=90", script="exec $STEPPER 2000")]
        results, texts = [], []
        for child in both:
            out, err = child.communicate(timeout=PATIENCE_S)
            results.append(json.loads(out.splitlines()[-1]))
            self.assertEqual((child.returncode, results[-1]["kills"], results[-1]["kills_unreached"]), (0, 1, []), err)
            texts.append(err)
            self.assertRegex(err, r"view 1 with 4 members")
            self.assertRegex(err, r"weights byte-identical on \d workers? of this machine \(\d in the job\)")
            self.assertIn("2 of 2 tasks of this machine took part, in a job of up to 4 members", err)
            self.assertEqual((results[-1]["machines"], results[-1]["members_max"]), (2, 4))
            for line in err.splitlines():  # who has finished on the other machine is not lost
                self.assertFalse(" lost" in line and "at step 2000" in line, err)
        self.assertEqual(len(set(results[0]["digests"] + results[1]["digests"])), 1)
        self.assertEqual(max(result["machines_identical"] for result in results), 2, texts)  # the last to end has compared

    def test_workers_learn_with_how_many_of_them_a_job_of_several_machines_begins(self):
        for nodes, least in (("2", "3"), ("1:2", ""), ("2:3", "3")):  # two workers on each: more than one machine has
            out, err = (child := self.launcher(0, "--nnodes", nodes, script="echo =$MUSTER_MIN_MEMBERS_START=")).communicate(timeout=PATIENCE_S)
            self.assertEqual((child.returncode, out.count(f"={least}=")), (0, 2), out + err)

    def test_a_job_that_one_machine_has_finished_is_over_for_the_other(self):
        first = self.launcher(0, script="$STEPPER 100 && echo has left")
        second = self.launcher(1, script="[ $MUSTER_RESTART_COUNT = 0 ] && export STEPPER_HOLD=/nowhere; echo pid $$; exec $STEPPER 100")
        lines_until(first, 2, "has left")
        for word in lines_until(second, 4, r"pid \d+|total 100"):
            if word.startswith("pid"):
                os.kill(int(word.split()[1]), signal.SIGKILL)
        for child, late in ((first, 0), (second, 2)):
            _, err = child.communicate(timeout=PATIENCE_S)
            self.assertEqual((child.returncode, err.count("came back too late")), (0, late), err)

    def test_a_failure_here_does_not_end_those_elsewhere(self):
        both = [self.launcher(0, "--max-restarts", "0", "--min-members", "2", script="[ $RANK = 1 ] && exit 5; sleep 0.5; echo done"),
                self.launcher(1, script="exit 0")]
        out, err = both[0].communicate(timeout=PATIENCE_S)
        self.assertEqual(both[0].returncode, 5, err)
        self.assertIn("[worker:0] done", out)

    def test_weights_are_compared_with_those_of_the_other_machine(self):
        first, same, other = (dict(steps=9, digest=digest) for digest in ("aaaa", "aaaa", "bbbb"))
        _, err = (child := self.launcher(0, script=reporting(first, first))).communicate(timeout=PATIENCE_S)
        self.assertEqual(child.returncode, 0, err)
        out, err = (child := self.launcher(1, script=reporting(first, first, same, same))).communicate(timeout=PATIENCE_S)
        self.assertEqual(child.returncode, 0, err)
        self.assertIn("weights byte-identical on 2 machines that have ended", err)
        self.assertEqual(json.loads(out)["machines_identical"], 2, err)
        out, err = (child := self.launcher(1, script=reporting(first, first, other, other))).communicate(timeout=PATIENCE_S)
        self.assertEqual((child.returncode, json.loads(out)["identical"]), (6, False), err)
        self.assertIn("machine 0 has other weights after step 9: aaaa", err)
        self.assertIn("WEIGHTS DIFFER", err)

    def test_a_registry_that_does_not_answer_is_told(self):
        child = start(self, "-n", "1", "--registry", "127.0.0.1:1", script="exec sleep 600")
        self.assertIn("the registry at 127.0.0.1:1 does not answer", child.stderr.readline())
        child.terminate()
        done = run("-n", "1", "--registry", "root:word@127.0.0.1:1", script="exit 0")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("MUSTER_REGISTRY_PASSWORD_FILE", done.stderr)
        self.assertNotIn("word@", done.stderr)


class Misuse(unittest.TestCase):
    def test_wrong_arguments_are_not_tried_again(self):
        for count in (1, 3):
            for script, code in (("echo usage >&2; exit 2", 2), ("no-such-command", 127)):
                done = run("-n", str(count), "--json", "-", script=script)
                result = json.loads(done.stdout)
                self.assertEqual((done.returncode, result["exit_code"]), (code, code))
                self.assertLess(result["restarts"], count, done.stderr)  # a slow machine may start some once more
                self.assertEqual(result["restarts"], sum(task["restarts"] for task in result["tasks"]))
                self.assertNotIn("no restart left", done.stderr)
                self.assertIn("called wrongly: not started again", done.stderr)
                self.assertIn(f"exited with code {code}", done.stderr)

    def test_a_gang_of_which_one_was_called_wrongly_is_not_tried_again(self):
        done = run("-n", "2", "--restart", "all", "--json", "-", script="[ $RANK = 1 ] && exit 2; exec sleep 60")
        result = json.loads(done.stdout)
        self.assertEqual((done.returncode, result["restarts"]), (2, 0), done.stderr)
        self.assertEqual((result["first_failure"]["task"], result["first_failure"]["how"]), ("worker:1", "exited with code 2"))

    def test_other_codes_other_workers_and_late_failures_are_tried_again(self):
        for script, code in (("exit 3", 3), ("exit $((RANK ? 2 : 64))", 2),
                             ("echo '{\"report\":\"progress\",\"step\":1}' >&3; exit 2", 2),
                             ("exit $((MUSTER_RESTART_COUNT ? 2 : 3))", 2)):
            done = run("-n", "2", "--max-restarts", "1", "--json", "-", script=script)
            self.assertEqual(json.loads(done.stdout)["restarts"], 2, (script, done.stderr))
            self.assertIn(done.returncode, (code, 64))
            self.assertNotIn("called wrongly", done.stderr)
        done = run("-n", "2", "--json", "-", script="[ $RANK$MUSTER_RESTART_COUNT = 10 ] && exit 2; sleep 0.5")
        self.assertEqual((done.returncode, json.loads(done.stdout)["restarts"]), (0, 1))

    def test_the_rule_is_in_the_help(self):
        page = subprocess.run([MUSTER, "run", "--help"], text=True, capture_output=True, timeout=PATIENCE_S, check=True)
        self.assertRegex(re.sub(r"\s+", " ", page.stdout), "No restart when all workers .* 2 or 64 .* 126 or 127")


class Failpoints(unittest.TestCase):
    def test_one_that_is_never_reached_is_told(self):
        done = run("-n", "2", "--quiet", "--json", "-", "--kill", "worker:1@step=4000", "--kill", "0@step=3,chunk=0",
                   script="exec $STEPPER 20")
        result = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual((done.returncode, result["kills"]), (0, 1), done.stderr)
        self.assertEqual(result["kills_unreached"], ["worker:1@step=4000"])
        self.assertEqual(done.stderr.count("never reached"), 1)
        self.assertIn("--kill worker:1@step=4000 was never reached", done.stderr)

    def test_a_task_that_does_not_exist_is_an_error_that_names_the_tasks(self):
        for count, kill, names in ((2, "worker:2@step=1", "worker:0 to worker:1"), (2, "ps:0@step=1", "worker:0 to worker:1"),
                                   (1, "7@step=1", "worker:0, the only worker"), (2, "two@step=1", "worker:0 to worker:1")):
            done = run("-n", str(count), "--kill", kill, script="exit 0")
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"there is no task '{kill.split('@', maxsplit=1)[0]}'", done.stderr)
            self.assertIn(names, done.stderr)
        done = run("-n", "2", "--kill", "0@step=1", "--kill", "worker:0@step=2", script="exit 0")
        self.assertEqual(done.returncode, 2)
        self.assertIn("worker:0 has one already", done.stderr)


if __name__ == "__main__":
    cases.main()
