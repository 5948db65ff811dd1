#!/usr/bin/env python3
"""`muster run` with programs that know nothing of muster: exit codes, output, environment, restarts, signals, and that
nothing outlives it."""
# Entries of ctest: ExitCodes Environment Output Restarts Signals ConfirmedDeaths Reports
import json
import os
import pty
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()
from puppets import Job

MUSTER = os.path.join(os.environ["MUSTER_BINARY_DIR"], "bin", "muster")
CLEAN = {k: v for k, v in os.environ.items()
         if not re.match(r"MUSTER_(?!BINARY_DIR|SOURCE_DIR|TEST_GUARD)|TF_CONFIG|RANK$|WORLD_SIZE|OMP_NUM|PYTHONUNBUF", k)}


def command(*args, script=None, program=None):
    tail = ["sh", "-c", script] if script is not None else list(program)
    return [MUSTER, "run", *args, "--", *tail]


def run(*args, script=None, program=None, **variables):
    return subprocess.run(command(*args, script=script, program=program), env=dict(CLEAN, **variables), text=True,
                          capture_output=True, timeout=120)


def summary(*args, script):
    with tempfile.TemporaryDirectory() as where:
        path = os.path.join(where, "summary.json")
        done = run(*args, "--json", path, script=script)
        with open(path, encoding="utf-8") as file:
            text = file.read()
    assert text.count("\n") == 1, text
    return done, json.loads(text)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(holds, seconds=30):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


class ExitCodes(unittest.TestCase):
    def test_all_workers_with_0_is_0_and_quiet(self):
        done = run("-n", "3", program=["true"])
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_code_and_signal_of_the_first_failure(self):
        for script, code in (("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143)):
            done = run("-n", "2", "--max-restarts", "0", "--min-members", "2",
                       script=f"[ $RANK = 0 ] && exec sleep 60; {script}")
            self.assertEqual(done.returncode, code, done.stderr)

    def test_programs_that_cannot_run_are_named_and_not_tried_again(self):
        for program, code, text in (("/nowhere/prog", 127, "No such file"), ("no-such-program", 127, "PATH"),
                                    ("train.py", 127, "write python3 before"),
                                    ("/etc/passwd", 126, "chmod +x"), ("/", 126, "directory"),
                                    ("/etc/passwd/prog", 127, "Not a directory\n")):
            done = run("-n", "2", program=[program])
            self.assertEqual(done.returncode, code, program)
            self.assertEqual(done.stderr.count("cannot start"), 1, done.stderr)
            self.assertIn(f"'{program}'", done.stderr)
            self.assertIn(text, done.stderr)

    def test_bad_options_name_the_culprit(self):
        for args, text in (
            (["--max-restart", "1"], "--max-restarts"), (["-n", "0"], "at least 1 worker, got 0"),
            (["-n", "many"], "--nproc-per-node must be a number from 1 to 4096, auto, cpu or gpu, got many"),
            (["--restart", "none"], "none"), (["-n", "2", "--min-members", "3"], "--min-members must be at most 2"),
            (["--kill", "worker:1@step=1"], "worker:1"), (["--kill", "0@stp=1"], "stp=1"),
            (["--kill", "0@step=1,chunk=x"], "chunk=x"), (["--kill", "zero@step=1"], "zero"),
            (["--nnodes", "2"], "muster registry"), (["--nnodes", "3:2"], "3:2"), (["--tee", "0:9"], "0:9"),
            (["--job", "a/b"], "a/b"), (["--job", "a\tc"], "byte 0x09"), (["--job", "\udcff"], "byte 0xff"),
            (["--json", "/nowhere/x"], "/nowhere/x"), (["--json", "/tmp"], "directory"), (["--registry", "nowhere"], "nowhere"),
        ):
            done = run(*args, program=["true"])
            self.assertNotEqual(done.returncode, 0, args)
            self.assertIn(text, done.stderr)
        self.assertEqual(run("--bogus", program=["true"]).returncode, 2)
        done = subprocess.run([MUSTER, "run", "-n", "2"], text=True, capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no program", done.stderr)

    def test_summary_of_the_first_failure(self):
        done = run("-n", "2", "--max-restarts", "1", "--min-members", "2",
                   script="[ $RANK = 1 ] || exec sleep 60; echo last words >&2; exit 7")
        self.assertEqual(done.returncode, 7)
        tail = done.stderr[done.stderr.index("first failure"):]
        for text in ("worker:1", "pid", "exited with code 7", "1 of 1 used", "last words"):
            self.assertIn(text, tail)


class Environment(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        job = Job()
        cls.addClassCleanup(job.stop)
        cls.registry = job.address

    def test_every_worker_gets_torchruns_names_and_tf_config(self):
        done = run("-n", "3", "--job", "abc", "--max-restarts", "5", script="env | sort")
        seen = {}
        for line in done.stdout.splitlines():
            worker, _, rest = line.partition("] ")
            name, _, value = rest.partition("=")
            seen.setdefault(worker.lstrip("["), {})[name] = value
        self.assertEqual(sorted(seen), ["worker:0", "worker:1", "worker:2"])
        for rank in range(3):
            env = seen[f"worker:{rank}"]
            for name, value in {
                "RANK": rank, "WORLD_SIZE": 3, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 3, "GROUP_RANK": 0,
                "ROLE_RANK": rank, "ROLE_WORLD_SIZE": 3, "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RESTART_COUNT": 0,
                "TORCHELASTIC_MAX_RESTARTS": 5, "TORCHELASTIC_RUN_ID": "abc", "OMP_NUM_THREADS": 1, "MUSTER_JOB": "abc",
                "MUSTER_RESTART_COUNT": 0, "MUSTER_REJOIN": 0, "MUSTER_MIN_MEMBERS": 1, "MUSTER_MIN_MEMBERS_TIMEOUT_S": 60,
            }.items():
                self.assertEqual(env.get(name), str(value), name)
            self.assertRegex(env["MUSTER_REGISTRY"], r"^127\.0\.0\.1:\d+$")
            config = json.loads(env["TF_CONFIG"])
            self.assertEqual(config["task"], {"type": "worker", "index": rank})
            self.assertEqual(config["cluster"], json.loads(seen["worker:0"]["TF_CONFIG"])["cluster"])
        ports = [a.rsplit(":", 1)[1] for a in config["cluster"]["worker"]] + [env["MASTER_PORT"]]
        self.assertEqual(len(set(ports)), 4)
        self.assertEqual(len({env["MUSTER_INCARNATION"] for env in seen.values()}), 3)
        for env in seen.values():
            self.assertRegex(env["MUSTER_INCARNATION"], "^[0-9a-f]{32}$")

    def test_a_timeout_below_a_second_is_not_the_default(self):
        for text, seconds in (("500ms", 1), ("0", 1), ("1500ms", 2), ("7", 7)):
            done = run("-n", "1", "--min-members-timeout", text, script="echo =$MUSTER_MIN_MEMBERS_TIMEOUT_S=")
            self.assertIn(f"={seconds}=", done.stdout, text)

    def test_variables_of_workers_are_defaults_of_options(self):
        """Not those that an outer launcher has set for the worker that this launcher is."""
        script = "echo =$MUSTER_JOB $MUSTER_MIN_MEMBERS $MUSTER_MIN_MEMBERS_TIMEOUT_S="
        given = {"MUSTER_JOB": "abc", "MUSTER_MIN_MEMBERS": "2", "MUSTER_MIN_MEMBERS_TIMEOUT_S": "7"}
        self.assertIn("=abc 2 7=", run("-n", "2", script=script, **given).stdout)
        self.assertIn("=x 1 3=", run("--job", "x", "--min-members", "1", "--min-members-timeout", "3", script=script, **given).stdout)
        self.assertRegex(run(script=script, MUSTER_INCARNATION="7" * 32, **given).stdout, "=run-[0-9a-f]{8} 1 60=")
        done = run(script=script, **given)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("--min-members (or MUSTER_MIN_MEMBERS) must be at most 1, the number of workers, got 2", done.stderr)

    def test_a_variable_that_has_no_effect_is_told(self):
        done = run("-n", "1", script="echo =$MUSTER_NODE_RANK$MUSTER_KILL=", MUSTER_NODE_RANK="3", MUSTER_KILL="step=5")
        self.assertIn("=0=", done.stdout)
        for name, option in (("MUSTER_NODE_RANK", "--node-rank"), ("MUSTER_KILL", "--kill")):
            self.assertIn(f"{name} has no effect on 'muster run' and its workers; use {option} instead", done.stderr)
        done = run("-n", "1", script="true", MUSTER_NODE_RANK="3", MUSTER_INCARNATION="7" * 32)
        self.assertEqual(done.stderr, "")

    def test_omp_threads_of_the_user_stay(self):
        self.assertIn("OMP_NUM_THREADS=7", run("-n", "2", script="env", OMP_NUM_THREADS="7").stdout)
        self.assertNotIn("OMP_NUM_THREADS", run("-n", "1", script="env").stdout)

    def test_the_report_descriptor_is_open_and_no_other(self):
        done = run("-n", "1", script="echo x >&$MUSTER_REPORT_FD && echo written; exec ls /proc/self/fd")
        # ls itself takes the lowest free one, 4, for the directory
        self.assertEqual([line.split()[1] for line in done.stdout.splitlines()], ["written", *"01234"])

    def test_what_the_launcher_inherited_is_not_passed_on(self):
        with open("/dev/null", encoding="utf-8") as extra:
            os.set_inheritable(extra.fileno(), True)
            done = subprocess.run(command("-n", "1", script="exec ls /proc/self/fd"), env=CLEAN, text=True,
                                  capture_output=True, timeout=120, pass_fds=[extra.fileno()])
        self.assertEqual([line.split()[1] for line in done.stdout.splitlines()], [*"01234"])

    def test_kill_reaches_the_first_life_of_its_task_only(self):
        done = run("-n", "2", "--kill", "worker:1@step=4,chunk=2",
                   script="echo \"$RANK.$MUSTER_RESTART_COUNT:$MUSTER_KILL\"; [ -z \"$MUSTER_KILL\" ] || kill -9 $$")
        self.assertEqual(sorted(line.split()[1] for line in done.stdout.splitlines()),
                         ["0.0:", "1.0:step=4,chunk=2", "1.1:"])

    def test_torchruns_spelling_and_many_nodes(self):
        done = run("--nproc_per_node=2", "--nnodes", "1:2", "--node-rank", "1", "--registry", self.registry, "--job",
                   "j", "--master-addr", "node0", "--master-port", "29500",
                   script="echo $RANK/$WORLD_SIZE $LOCAL_RANK $GROUP_RANK $MASTER_ADDR:$MASTER_PORT $MUSTER_MIN_MEMBERS")
        self.assertEqual(sorted(done.stdout.splitlines()),
                         ["[worker:2] 2/4 0 1 node0:29500 2", "[worker:3] 3/4 1 1 node0:29500 2"])

    def test_the_master_of_many_nodes(self):
        """MASTER_ADDR is what was given, also the address of this host; workers that use muster need none."""
        many = ["-n", "1", "--nnodes", "2", "--registry", self.registry, "--job", "j", "--quiet"]
        script = "echo ${MASTER_ADDR-unset}:${MASTER_PORT-unset}"
        for words, variables, shown in (
                ([], {}, "unset:unset"), ([], {"MASTER_ADDR": "a", "MASTER_PORT": "7"}, "a:7"),
                (["--master-addr", "127.0.0.1", "--master-port", "7"], {"MASTER_ADDR": "a"}, "127.0.0.1:7"),
                (["--master-addr", "127.0.0.1"], {}, "127.0.0.1:29500"),
                (["--master-addr", "127.0.0.1", "--restart", "all"], {}, "127.0.0.1:29500"),
                (["--restart", "all"], {"MASTER_ADDR": "a", "MASTER_PORT": "7"}, "a:7")):
            with self.subTest(words=words, variables=variables):
                done = run(*many, *words, script=script, **variables)
                self.assertEqual(done.stdout, f"[worker:0] {shown}\n", done.stderr)
        for words, named in ((["--restart", "all"], "--master-addr and --master-port"),
                             (["--master-port", "7"], "--master-addr must be given with --master-port 7")):
            done = run(*many, *words, script="echo started")
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(named, done.stderr)
        config = json.dumps({"cluster": {"worker": ["node0:1", "node1:1"]}, "task": {"type": "worker", "index": 0}})
        many = ["-n", "1", "--resolver", "tf_config:", "--registry", self.registry, "--job", "j", "--quiet"]
        done = run(*many, "--master-addr", "127.0.0.1", script=script, TF_CONFIG=config)
        self.assertEqual(done.stdout, "[worker:0] 127.0.0.1:1\n", done.stderr)
        for words in (["--nnodes", "1"], ["--node-rank", "0"]):
            done = run(*many, *words, script="echo started", TF_CONFIG=config)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("leave out --nnodes and --node-rank", done.stderr)

    def test_a_resolver_tells_the_machines(self):
        config = {"cluster": {"chief": ["node0:29500"], "worker": ["node1:1", "node2:1"], "ps": ["node3:1"]},
                  "task": {"type": "worker", "index": 0}}
        many = ["-n", "2", "--registry", self.registry, "--job", "j", "--resolver", "tf_config:", "--quiet"]
        script = "echo $RANK/$WORLD_SIZE $GROUP_RANK $MASTER_ADDR:$MASTER_PORT ${MUSTER_RESOLVER-unset}"
        done = run(*many, script=script, TF_CONFIG=json.dumps(config), MUSTER_RESOLVER="zoo:")
        self.assertEqual(sorted(line.split(" ", 1)[1] for line in done.stdout.splitlines()),
                         ["2/6 1 node0:29500 unset", "3/6 1 node0:29500 unset"])
        aside = dict(config, task={"type": "ps", "index": 0})
        done = run(*many, script="true", TF_CONFIG=json.dumps(aside))
        self.assertEqual(done.returncode, 3)
        self.assertIn("--resolver 'tf_config:': this machine must be one of the tasks that train, got ps:0; name its task, as in", done.stderr)
        done = run(*many, script="true", TF_CONFIG="{}")
        self.assertEqual(done.returncode, 3)
        self.assertIn("--resolver 'tf_config:' found no cluster: set the variables that it reads", done.stderr)
        done = run(*many, "--nnodes", "2", script="true", TF_CONFIG=json.dumps(config))
        self.assertEqual(done.returncode, 2)
        self.assertIn("leave out --nnodes", done.stderr)

    def test_arguments_of_the_program_are_its_own(self):
        done = run("-n", "1", program=["printf", "%s|", "--tee", "--a_b", "-n", "--", "x y"])
        self.assertEqual(done.stdout, "[worker:0] --tee|--a_b|-n|--|x y|\n")


class Output(unittest.TestCase):
    def test_lines_are_never_split(self):
        line = "abcdefghij" * 30
        script = f"i=0; while [ $i -lt 300 ]; do printf %s $RANK; printf '%s\\n' {line}; i=$((i+1)); done"
        done = run("-n", "4", script=script)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 1200)
        for text in lines:
            self.assertRegex(text, rf"^\[worker:(\d)\] \1{line}$")

    def test_a_line_in_pieces_comes_out_whole_and_the_last_one_too(self):
        done = run("-n", "2", script="printf a; sleep 0.05; printf b; sleep 0.05; echo c; printf end")
        self.assertEqual(sorted(done.stdout.splitlines()),
                         ["[worker:0] abc", "[worker:0] end", "[worker:1] abc", "[worker:1] end"])

    def test_a_line_above_the_limit_is_cut_into_lines_and_nothing_is_lost(self):
        done = run("-n", "1", script="head -c 2500000 /dev/zero | tr '\\0' x; echo; echo after")
        lines = [line.partition("] ")[2] for line in done.stdout.splitlines()]
        self.assertEqual([len(line) for line in lines], [1 << 20, 1 << 20, 2500000 - (2 << 20), 5])

    def test_standard_error_stays_apart(self):
        done = run("-n", "1", script="echo out; echo; echo err >&2")
        self.assertEqual(done.stdout, "[worker:0] out\n[worker:0] \n")
        self.assertEqual(done.stderr, "[worker:0] err\n")

    def test_a_reader_that_waits_loses_nothing(self):
        script = "i=0; while [ $i -lt 3000 ]; do printf '%02000d\\n' $i; i=$((i+1)); done"
        with subprocess.Popen(command("-n", "2", script=script), env=CLEAN, stdout=subprocess.PIPE) as child:
            time.sleep(0.5)
            text = child.stdout.read()
            self.assertEqual(child.wait(60), 0)
        self.assertEqual(text.count(b"\n"), 6000)

    def test_a_reader_that_is_gone_stops_nobody(self):
        with subprocess.Popen(command("-n", "2", script="i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); done"),
                              env=CLEAN, stdout=subprocess.PIPE) as child:
            child.stdout.close()
            self.assertEqual(child.wait(60), 0)

    def test_log_files_per_rank_and_attempt(self):
        with tempfile.TemporaryDirectory() as where:
            logs = os.path.join(where, "logs")
            done = run("-n", "2", "--log-dir", logs,
                       script="echo out $RANK.$MUSTER_RESTART_COUNT; echo err >&2; [ $RANK.$MUSTER_RESTART_COUNT != 1.0 ]")
            self.assertEqual(done.returncode, 0)
            self.assertIn("[worker:1] out 1.1", done.stdout)
            for path, text in (("attempt_0/0/stdout.log", "out 0.0\n"), ("attempt_0/1/stdout.log", "out 1.0\n"),
                               ("attempt_1/1/stdout.log", "out 1.1\n"), ("attempt_1/1/stderr.log", "err\n")):
                with open(os.path.join(logs, path), encoding="utf-8") as file:
                    self.assertEqual(file.read(), text)

    def test_redirects_and_tee_take_masks(self):
        with tempfile.TemporaryDirectory() as logs:
            done = run("-n", "2", "--log-dir", logs, "--redirects", "0:1,1:2", script="echo out; echo err >&2")
            self.assertEqual((done.stdout, done.stderr), ("[worker:1] out\n", "[worker:0] err\n"))
            self.assertTrue(os.path.exists(f"{logs}/attempt_0/0/stdout.log"))
            self.assertFalse(os.path.exists(f"{logs}/attempt_0/0/stderr.log"))
            done = run("-n", "1", "--log-dir", logs, "--tee", script="echo out; echo err >&2")
            self.assertEqual((done.stdout, done.stderr), ("[worker:0] out\n", "[worker:0] err\n"))
            self.assertTrue(os.path.exists(f"{logs}/attempt_0/0/stderr.log"))

    def test_a_log_directory_is_made_with_those_above_it(self):
        with tempfile.TemporaryDirectory() as where:
            logs = os.path.join(where, "above", "logs")
            done = run("-n", "1", "--log-dir", logs, script="echo out")
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(logs, "attempt_0", "0", "stdout.log"), encoding="utf-8") as log:
                self.assertEqual(log.read(), "out\n")

    def test_logs_without_a_directory_go_to_one_that_is_told(self):
        """And none is left when nothing could be started."""
        with tempfile.TemporaryDirectory() as where:
            done = run("-n", "2", "--tee", program=["no-such-program"], TMPDIR=where)
            self.assertEqual(done.returncode, 127, done.stderr)
            self.assertNotIn("logs are in", done.stderr)
            self.assertEqual(os.listdir(where), [])
            done = run("-n", "1", "--tee", script="echo out", TMPDIR=where)
            made, = os.listdir(where)
            self.assertIn(f"logs are in {os.path.join(where, made)}", done.stderr)
            self.assertTrue(os.path.exists(os.path.join(where, made, "attempt_0", "0", "stdout.log")))

    def test_a_log_directory_that_cannot_be_made(self):
        done = run("-n", "1", "--log-dir", "/proc/nothing", program=["true"])
        self.assertEqual(done.returncode, 1)
        self.assertIn("/proc/nothing", done.stderr)


class Restarts(unittest.TestCase):
    def test_only_the_worker_that_died_starts_again(self):
        done, result = summary("-n", "3", script="echo life; [ $RANK.$MUSTER_RESTART_COUNT != 1.0 ] || kill -9 $$; sleep 0.2")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(sorted(done.stdout.split("\n")[:-1]),
                         ["[worker:0] life", "[worker:1] life", "[worker:1] life", "[worker:2] life"])
        self.assertEqual([result[k] for k in ("exit_code", "restarts", "kills", "survivors_restarted", "workers")],
                         [0, 1, 1, 0, 3])
        for key in ("epochs", "views", "joins", "recovery_ms", "steps", "steps_lost", "rejoins", "recovery_ms_max",
                    "identical", "digests"):
            self.assertIn(key, result)
        self.assertEqual(set(result["recovery_ms"]), {"median", "max"})
        self.assertNotIn("accuracy", result)  # nobody has reported one
        self.assertIn("worker:1 killed by SIGKILL", done.stderr)

    def test_others_go_on_without_a_task_that_has_no_restart_left(self):
        done, result = summary("-n", "3", "--max-restarts", "1", "--min-members", "2",
                               script="[ $RANK = 1 ] && exit 5; sleep 0.5; echo finished")
        self.assertEqual(done.stdout.count("finished"), 2)
        self.assertEqual((done.returncode, result["exit_code"], result["restarts"]), (5, 5, 1))
        self.assertEqual(result["first_failure"]["task"], "worker:1")

    def test_too_few_left_ends_all(self):
        done, result = summary("-n", "3", "--max-restarts", "0", "--min-members", "3",
                               script="[ $RANK = 1 ] && exit 5; exec sleep 60")
        self.assertEqual((done.returncode, result["exit_code"]), (5, 5))

    def test_an_early_exit_with_0_is_a_leave(self):
        done, result = summary("-n", "2", "--min-members", "2", script="[ $RANK = 1 ] && exit 0; sleep 0.2; echo finished")
        self.assertEqual((done.returncode, result["restarts"]), (0, 0))
        self.assertIn("[worker:0] finished", done.stdout)

    def test_a_gang_starts_again_as_a_whole(self):
        done, result = summary("-n", "3", "--restart", "all", script=(
            "echo gang $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; "
            "[ $RANK = 1 ] && sleep 0.3 && exit 4; exec sleep 60"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("gang 0"), 3)
        self.assertEqual(done.stdout.count("gang 1"), 3)
        self.assertEqual((result["restarts"], result["survivors_restarted"]), (1, 2))

    def test_a_start_costs_no_descriptor_for_good(self):
        few = 80  # enough for eight workers at a time, not for one more per start
        with tempfile.TemporaryDirectory() as logs:
            done = subprocess.run(
                command("-n", "8", "--max-restarts", "3", "--log-dir", logs, script="[ $MUSTER_RESTART_COUNT = 3 ]"),
                env=CLEAN, text=True, capture_output=True, timeout=120,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (few, few)))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_user_without_processes_is_told_of_the_limit(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
            if os.geteuid() == 0:  # whom no limit of processes holds back
                os.setgroups([])
                os.setgid(54321)
                os.setuid(54321)

        env = dict(CLEAN, ASAN_OPTIONS="detect_leaks=0")  # the search for leaks needs a process, too
        done = subprocess.run(command("-n", "1", script="true"), env=env, text=True, capture_output=True, timeout=120, cwd="/", preexec_fn=limit)
        self.assertEqual(done.returncode, 126, done.stderr)
        self.assertIn("this user may have no more processes: raise the limit (ulimit -u, or pids.max of the cgroup)", done.stderr)

    def test_a_gang_gives_up_with_the_code_of_the_failure(self):
        done = run("-n", "2", "--restart", "all", "--max-restarts", "1",
                   script="echo gang; [ $RANK = 1 ] && sleep 0.3 && exit 4; exec sleep 60")
        self.assertEqual((done.returncode, done.stdout.count("gang")), (4, 4))


class Signals(unittest.TestCase):
    def start(self, *args, script):
        child = subprocess.Popen(command(*args, script=script), env=CLEAN, text=True, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        return child

    def lines(self, child, count):
        return sorted(child.stdout.readline().strip().partition("] ")[2] for _ in range(count))

    def test_they_are_passed_on_and_nobody_is_started_again(self):
        for number, name in ((signal.SIGTERM, "TERM"), (signal.SIGINT, "INT"), (signal.SIGHUP, "HUP")):
            child = self.start("-n", "2", script=(
                f"trap 'echo got {name}; exit 9' {name}; echo ready; while :; do sleep 0.02; done"))
            self.assertEqual(self.lines(child, 2), ["ready"] * 2)
            child.send_signal(number)
            self.assertEqual(self.lines(child, 2), [f"got {name}"] * 2)
            self.assertEqual(child.wait(60), 128 + number)

    def test_one_ends_a_run_whose_workers_all_wait_for_a_restart(self):
        child = self.start("-n", "1", "--max-restarts", "50", script="exit 3")
        while "restart 7 of 50" not in (line := child.stderr.readline()):  # which waits for seconds
            self.assertNotEqual(line, "")
        child.terminate()
        self.assertEqual(child.wait(60), 143)

    def test_user_signals_are_passed_on_and_the_run_goes_on(self):
        child = self.start("-n", "2", script="trap 'echo usr; exit 0' USR1; echo ready; while :; do sleep 0.02; done")
        self.lines(child, 2)
        child.send_signal(signal.SIGUSR1)
        self.assertEqual(self.lines(child, 2), ["usr"] * 2)
        self.assertEqual(child.wait(60), 0)

    def test_a_parent_that_ignores_its_children_changes_nothing(self):
        done = subprocess.run(command("-n", "2", "--max-restarts", "0", script="exit 3"), env=CLEAN, timeout=60,
                              capture_output=True, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(done.returncode, 3)

    def test_workers_that_end_with_0_make_it_0(self):
        child = self.start("-n", "2", script="trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done")
        self.lines(child, 2)
        child.terminate()
        self.assertEqual(child.wait(60), 0)

    def test_a_deaf_worker_is_killed_after_the_grace_time(self):
        child = self.start("-n", "2", "--grace", "100ms", script="trap '' TERM; echo ready; while :; do sleep 0.02; done")
        self.lines(child, 2)
        child.terminate()
        self.assertEqual(child.wait(60), 143)

    def test_a_burst_of_signals_is_one_wish_to_stop(self):
        child = self.start("-n", "2", "--grace", "1h", script=(
            "trap 'echo told; sleep 0.3; exit 0' TERM INT; echo ready; while :; do sleep 0.02; done"))
        self.lines(child, 2)
        for _ in range(3):  # timeout(1) signals its child, and then the group
            child.terminate()
            child.send_signal(signal.SIGINT)
        self.assertEqual(self.lines(child, 2), ["told"] * 2)
        self.assertEqual(child.wait(60), 0)

    def test_a_second_signal_a_second_later_kills_at_once(self):
        child = self.start("-n", "2", "--grace", "1h", script=(
            "trap 'echo deaf' INT; echo ready; while :; do sleep 0.02; done"))
        self.lines(child, 2)
        child.send_signal(signal.SIGINT)
        self.assertEqual(self.lines(child, 2), ["deaf"] * 2)
        end = time.monotonic() + 60
        while child.poll() is None and time.monotonic() < end:  # from a second after the first on
            child.send_signal(signal.SIGINT)
            time.sleep(0.2)
        self.assertEqual(child.wait(60), 130)

    def test_nothing_outlives_a_killed_launcher(self):
        child = self.start("-n", "2", script="sleep 600 & echo $$ $!; wait")
        pids = [int(pid) for line in self.lines(child, 2) for pid in line.split()]
        self.assertEqual(len(pids), 4)
        self.assertTrue(all(is_alive(pid) for pid in pids))
        child.kill()
        self.assertTrue(wait_until(lambda: not any(is_alive(pid) for pid in pids)))

    def test_nothing_outlives_an_orderly_end(self):
        child = self.start("-n", "2", script="exec 3>&-; sleep 600 & setsid sleep 600 & sleep 0.2; pgrep -P $$ sleep | tr '\\n' ' '; echo $!; exit 0")
        pids = [int(pid) for line in self.lines(child, 2) for pid in line.split()]
        self.assertGreaterEqual(len(pids), 4)
        self.assertEqual(child.wait(60), 0)
        self.assertFalse(any(is_alive(pid) for pid in pids))

    def test_a_dead_worker_takes_its_children_along(self):
        child = self.start("-n", "2", "--max-restarts", "0", script=(
            "[ $RANK = 0 ] && exec sleep 600; sleep 600 & echo $!; kill -9 $$"))
        orphan = int(self.lines(child, 1)[0])
        self.assertTrue(wait_until(lambda: not is_alive(orphan)))
        self.assertIsNone(child.poll())


class ConfirmedDeaths(unittest.TestCase):
    def test_the_registry_knows_each_death_and_how_it_came(self):
        if not shutil.which("etcdctl"):
            self.skipTest("etcdctl is not installed")
        registry = subprocess.Popen([MUSTER, "registry", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True,
                                    stderr=subprocess.DEVNULL)
        self.addCleanup(registry.communicate)
        self.addCleanup(registry.kill)
        endpoint = registry.stdout.readline().split()[1]
        done = run("-n", "2", "--job", "deaths", "--registry", endpoint, script=(
            "echo $RANK.$MUSTER_RESTART_COUNT $MUSTER_INCARNATION $MUSTER_REGISTRY; case $RANK.$MUSTER_RESTART_COUNT in "
            "1.0) kill -9 $$;; 1.1) exit 3;; esac"))
        self.assertEqual(done.returncode, 0, done.stderr)
        lives = {}
        for line in done.stdout.splitlines():
            life, incarnation, seen = line.split()[1:]
            lives[life] = incarnation
            self.assertEqual(seen, endpoint)
        keys = subprocess.run(["etcdctl", "--endpoints", endpoint, "get", "--prefix", "/muster/deaths/dead/"], text=True,
                              capture_output=True, timeout=60, env=dict(os.environ, ETCDCTL_API="3")).stdout.split("\n")
        found = dict(zip(keys[0::2], keys[1::2]))
        self.assertEqual(found.get(f"/muster/deaths/dead/{lives['1.0']}"), "SIGKILL")
        self.assertEqual(found.get(f"/muster/deaths/dead/{lives['1.1']}"), "exit 3")
        self.assertEqual(found.get(f"/muster/deaths/dead/{lives['0.0']}"), "exit 0")


def fake_worker(rank):
    """What rank 0 … 3 of a job report, of whom worker:2 is killed once."""
    def report(**fields):
        os.write(3, (json.dumps(fields) + "\n").encode())

    life = int(os.environ["MUSTER_RESTART_COUNT"])
    where = os.environ["FAKE_DIR"]
    if rank == 2 and life == 0:
        report(report="progress", step=150, epoch=1, members=4, values={"loss": 0.5})
        wait_until(lambda: len(os.listdir(where)) == 3)
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 2:
        report(report="rejoined", epoch=3, catch_up_ms=41.0, from_step=163)
    else:
        report(report="view", epoch=1, members=4, lost=[], joined=[], recovery_ms=0)
        report(report="progress", step=150, epoch=1, members=4, values={"loss": 0.31, "images_per_s": 5210.0})
        open(f"{where}/{rank}", "w", encoding="utf-8").close()
        if "FAKE_AT_ONCE" in os.environ:
            wait_until(lambda: os.path.exists(f"{where}/rejoined"))
            report(report="progress", step=170, epoch=2, members=4, values={"loss": 0.31})
        report(report="view", epoch=2, members=3, lost=["worker:2"], joined=[], recovery_ms=1.0 + rank / 10,
               op="all_reduce #812 of step 150", phase="reduce", verdict="retry",
               step=149 if rank == 0 else 150)  # rank 0 had not begun the step
    os.write(3, b"this is no report\n")
    time.sleep(0.3)
    report(report="result", steps=900, steps_lost=0, values={"accuracy": 0.97}, digest="00112233aabbccdd")


# worker:2 is lost and taken in again by one change. The launcher waits for 2 s for the members' word on the death, which is longer than a
# busy machine takes to start a shell.
AT_ONCE = """[ $RANK.$MUSTER_RESTART_COUNT = 2.1 ] || exec "$0" "$@"
echo '{"report":"view","epoch":2,"members":4,"lost":[],"joined":["worker:2"],"recovery_ms":0,"step":151}' >&3
echo '{"report":"rejoined","epoch":2,"catch_up_ms":41.0,"from_step":151}' >&3
: > "$FAKE_DIR/rejoined"
sleep 0.3
echo '{"report":"result","steps":900,"steps_lost":0,"values":{"accuracy":0.97},"digest":"00112233aabbccdd"}' >&3
"""


class Reports(unittest.TestCase):
    def run_fake(self, *args, **kwargs):
        with tempfile.TemporaryDirectory() as where:
            program = [*(["sh", "-c", AT_ONCE] if "FAKE_AT_ONCE" in kwargs else []), "python3", os.path.abspath(__file__), "fake"]
            return kwargs.pop("how", run)("-n", "4", *args, program=program, FAKE_DIR=where, **kwargs)

    def test_a_death_is_told_before_the_rejoin_of_the_same_change(self):
        told = self.run_fake(FAKE_AT_ONCE="1").stderr.splitlines()
        death = [i for i, line in enumerate(told) if "worker:2 killed by SIGKILL at step 150, operation 812" in line]
        self.assertEqual(len(death), 1, told)
        self.assertGreater([i for i, line in enumerate(told) if line.endswith("Z [muster] worker:2 rejoined in 41 ms, view 2")][0], death[0])

    def test_who_comes_back_too_late_has_not_failed(self):
        # Worker 0 ends when the other one is back, which goes on when the launcher has seen that.
        with tempfile.TemporaryDirectory() as where:
            done = run("-n", "2", "--json", "-", FAKE_DIR=where, script=(
                "cd $FAKE_DIR; case $RANK.$MUSTER_RESTART_COUNT in "
                "0.0) echo '{\"report\":\"progress\",\"step\":1}' >&3; echo $$ > new; mv new pid; until [ -e back ]; do sleep 0.02; done;; "
                "1.0) kill -9 $$;; *) : > back; until [ -e pid ]; do sleep 0.02; done; while kill -0 $(cat pid); do sleep 0.02; done; "
                "echo '{\"report\":\"over\"}' >&3; exit 1;; esac"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["restarts"], 1)
        self.assertIn("[muster] worker:1 came back too late: the others have finished", done.stderr)

    def test_events_are_told_once_in_plain_words(self):
        done = self.run_fake("--json", "-")
        told = [line.split(" ", 1)[1] for line in done.stderr.splitlines() if "Z [muster] " in line]
        self.assertIn("[muster] worker:2 killed by SIGKILL at step 150, operation 812 (all_reduce, reduce phase) retried without it, "
                      "view 2 with 3 members after 1.3 ms", told)
        self.assertIn("[muster] worker:2 rejoined in 41 ms, view 3", told)
        self.assertEqual(sum("worker:2 killed" in line for line in told), 1)
        self.assertTrue(any("test accuracy 97.0 %" in line for line in told))
        self.assertTrue(any("byte-identical on 4 workers" in line for line in told))

        result = json.loads(done.stdout)
        self.assertEqual(
            {k: result[k] for k in ("exit_code", "accuracy", "steps", "kills", "rejoins", "steps_lost", "epochs", "views", "joins",
                                    "recovery_ms", "recovery_ms_max", "identical", "digests", "survivors_restarted")},
            {"exit_code": 0, "accuracy": 0.97, "steps": 900, "kills": 1, "rejoins": 1, "steps_lost": 0, "epochs": 3, "views": 3, "joins": 0,
             "recovery_ms": {"median": 1.3, "max": 1.3}, "recovery_ms_max": 1.3, "identical": True,
             "digests": ["00112233aabbccdd"] * 4, "survivors_restarted": 0})

    def test_a_terminal_shows_one_progress_line(self):
        master, slave = pty.openpty()
        seen = []

        def read():
            try:
                while data := os.read(master, 4096):
                    seen.append(data)
            except OSError:
                pass

        reader = threading.Thread(target=read)
        reader.start()
        with tempfile.TemporaryDirectory() as where:
            program = ["python3", os.path.abspath(__file__), "fake"]
            done = subprocess.run(command("-n", "4", program=program), env=dict(CLEAN, FAKE_DIR=where), stdout=slave,
                                  stderr=slave, timeout=120)
        os.close(slave)
        reader.join()
        os.close(master)
        text = b"".join(seen).decode()
        self.assertEqual(done.returncode, 0)
        self.assertRegex(text, r"step 150, loss 0\.\d+(, 5,210 images/s)?, 4 members, view 1(\r\x1b\[K|$)")
        self.assertRegex(text, r"(^|\n|\x1b\[K)\d\d:\d\d:\d\d \[muster\] worker:2 rejoined")


if __name__ == "__main__":
    import sys
    if sys.argv[1:] == ["fake"]:
        fake_worker(int(os.environ["RANK"]))
    else:
        unittest.main()
