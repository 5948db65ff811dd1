"""muster run --preload: workers fork from a process that has imported modules, at the start and after each death."""
import os
import re
import select
import signal
import subprocess
import sys

import pytest
from conftest import LOOP, MUSTER, PATIENCE_S

# A module that says each time that it is imported; what it has is there in the forks.
HEAVY = """
import os
with open("imports", "a") as file:
    print(os.getpid(), file=file)
importer = os.getpid()
"""

SHOW = """
import os, resource, sys
import heavy
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print("shown", {
    "ids": (os.getpid() == os.getpgrp(), os.getppid() == int(os.environ["LAUNCHER"]), __name__),
    "argv": sys.argv, "path": sys.path[0], "cwd": os.getcwd(), "file": globals().get("__file__"),
    "threads": int(status["Threads"]), "signals": [status[name].strip() for name in ("SigBlk", "SigIgn", "SigCgt")],
    "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
    "streams": [(stream.encoding, stream.errors, stream.line_buffering, stream.write_through) for stream in (sys.stdin, sys.stdout, sys.stderr)],
    "flags": str(sys.flags), "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
    "environment": {name: value for name, value in os.environ.items() if name not in
                    ("MUSTER_JOB", "MUSTER_REGISTRY", "MUSTER_INCARNATION", "MUSTER_STEP_PLACE", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TF_CONFIG",
                     "LAUNCHER")},
}, file=sys.stderr)
print("hello from", sys.stdin.read() == "", flush=True)
sys.exit(int(os.environ["RANK"]) * 3)
"""


def run(folder, *words, n=1, options=(), preload="heavy", **more):
    """What `muster run` has printed, when it has ended. The shell says its own number, which exec keeps."""
    (folder / "heavy.py").write_text(HEAVY, encoding="utf-8")
    clean = {k: v for k, v in os.environ.items() if not re.match(r"MUSTER_(?!BINARY_DIR|SOURCE_DIR)|TF_CONFIG|RANK$|WORLD_SIZE", k)}
    clean["PYTHONPATH"] = f"{os.environ['PYTHONPATH']}:{folder}"
    preloads = ["--preload", preload] if preload else []
    command = ["sh", "-c", 'LAUNCHER=$$ exec "$@"', "sh", MUSTER, "run", "-n", str(n), "--max-restarts", "0", *preloads, *options, "--", *words]
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, timeout=PATIENCE_S, check=False, **more)
    assert "AddressSanitizer" not in done.stderr and "runtime error" not in done.stderr, done.stderr
    return done


def imports(folder):
    return (folder / "imports").read_text(encoding="utf-8").split()


def shown(done):
    return re.sub(r"^\[\S+\] ", "", re.search(r"^.*shown (.*)$", done.stderr, re.M)[1])


def start_loop(job, tmp_path, *options):
    """Two members that step, and say which process has imported for them."""
    (tmp_path / "heavy.py").write_text(HEAVY, encoding="utf-8")
    started = job("import heavy\nsay('imported', heavy.importer, os.getpid())\n" + LOOP, 2, "--preload", "heavy,numpy", *options,
                  env={"PYTHONPATH": f"{os.environ['PYTHONPATH']}:{tmp_path}"})
    started.wait_step(3)
    return started


def preload_pid(started):
    return int(re.search(r"workers fork from process (\d+)", started.text())[1])


def importers(started):
    return {int(words[1]) for _, _, words in started.said() if words[0] == "imported"}


@pytest.mark.parametrize("form", ["script", "module", "code", "options", "first line"])
def test_a_worker_is_as_if_it_had_been_started_directly(tmp_path, form):
    (tmp_path / "sub").mkdir()
    script = tmp_path / "sub" / "show.py"
    script.write_text(f"#!{sys.executable} -B\n{SHOW}", encoding="utf-8")
    script.chmod(0o755)
    words = {"script": [sys.executable, "sub/show.py"], "module": [sys.executable, "-m", "sub.show"], "code": [sys.executable, "-c", SHOW],
             "options": [sys.executable, "-W", "error", "-Xdev", "-u", "sub/show.py"], "first line": ["sub/show.py"]}[form]

    direct = run(tmp_path, *words, "--lr", "1 2", preload=None)
    forked = run(tmp_path, *words, "--lr", "1 2")

    assert (direct.returncode, forked.returncode) == (0, 0), direct.stderr + forked.stderr
    assert shown(forked) == shown(direct)
    assert "hello from True" in forked.stdout


def test_the_modules_are_imported_once_and_exit_codes_are_exact(tmp_path):
    program = "import heavy, os, sys; assert heavy.importer != os.getpid(); sys.exit(int(os.environ['RANK']) * 3)"

    done = run(tmp_path, sys.executable, "-c", program, n=3)

    assert len(imports(tmp_path)) == 1
    assert done.returncode in (3, 6), done.stderr
    assert "worker:1 exited with code 3" in done.stderr and "worker:2 exited with code 6" in done.stderr, done.stderr


@pytest.mark.parametrize("end, code", [("raise KeyError('gone')", 1), ("os.kill(os.getpid(), 15)", 143), ("os._exit(7)", 7),
                                       ("signal.raise_signal(signal.SIGINT)", 130), ("sys.exit('told')", 1)])
def test_ends_of_a_worker_come_out_as_they_are(tmp_path, end, code):
    done = run(tmp_path, sys.executable, "-c", f"import atexit, os, signal, sys\natexit.register(print, 'at exit')\n{end}")

    assert done.returncode == code, done.stderr
    assert ("at exit" in done.stdout) == (code not in (143, 7)), done.stdout
    assert "_preload" not in "".join(line for line in done.stderr.splitlines() if "File" in line and "KeyError" in done.stderr), done.stderr


def test_what_runs_at_the_exit_knows_of_an_exception(tmp_path):
    done = run(tmp_path, sys.executable, "-c", """
import atexit, sys
atexit.register(lambda: print("last", sys.last_type.__name__, sys.last_value, sys.last_traceback.tb_lineno))
raise KeyError('gone')
""")

    assert "last KeyError 'gone' 4" in done.stdout, done.stderr


@pytest.mark.parametrize("options", [(), ("--tls", "auto"), ("--restart", "all")], ids=" ".join)
def test_a_killed_worker_comes_back_from_the_same_process(job, tmp_path, options):
    run = start_loop(job, tmp_path, *options)
    for count in (1, 2):
        run.kill(1)
        pid = run.wait_said("imported", 1, count + 1)
        run.wait_until(lambda: any(said == pid and words[0] == "step" for _, said, words in run.said(1)), "a step of the new life")
    run.stop()

    summary = run.end()

    assert importers(run) == {preload_pid(run)} and summary["restarts"] == 2


def test_without_that_process_workers_start_directly(job, tmp_path):
    run = start_loop(job, tmp_path)
    os.kill(preload_pid(run), signal.SIGKILL)
    run.wait_until(lambda: "workers start directly" in run.text(), "the loss is told")
    run.kill(1)
    run.wait_said("imported", 1, 2)
    run.wait_step(run.step() + 3)
    run.stop()

    run.end()

    assert "was lost (killed by SIGKILL)" in run.text()
    assert any(words[0] == "imported" and words[1] == words[2] for _, _, words in run.said(1))  # by the worker itself


def test_a_process_that_does_not_answer_is_given_up(job, tmp_path):
    run = start_loop(job, tmp_path)
    os.kill(preload_pid(run), signal.SIGSTOP)
    run.kill(1)
    run.wait_said("imported", 1, 2)
    run.wait_until(lambda: run.said(1)[-1][2][0] == "step", "a step of the new life")
    run.stop()

    summary = run.end()

    assert "was lost (killed by SIGKILL)" in run.text() and summary["restarts"] == 1
    assert any(words[0] == "imported" and words[1] == words[2] for _, _, words in run.said(1))


def test_a_process_killed_while_it_imports_holds_up_nobody(tmp_path):
    (tmp_path / "fatal.py").write_text("import os\nif not os.path.exists('tried'):\n  open('tried', 'w').close()\n  os.kill(os.getpid(), 9)",
                                       encoding="utf-8")

    done = run(tmp_path, sys.executable, "-c", "import fatal; print('runs')", n=2, preload="fatal")

    assert done.returncode == 0 and done.stdout.count("runs") == 2 and "was lost (killed by SIGKILL)" in done.stderr


def test_a_signal_during_the_imports_ends_the_job(job, tmp_path):
    (tmp_path / "slow.py").write_text("import time\nopen('importing', 'w').close()\nwhile True:\n  time.sleep(0.01)", encoding="utf-8")
    run = job("", 2, "--preload", "slow", env={"PYTHONPATH": f"{os.environ['PYTHONPATH']}:{tmp_path}"})
    run.wait_until((run.folder / "importing").exists, "the import")

    run.child.send_signal(signal.SIGTERM)

    assert run.child.wait(PATIENCE_S) == 128 + signal.SIGTERM, run.text()


def test_no_process_of_it_outlives_the_launcher(job, tmp_path):
    run = start_loop(job, tmp_path)
    ends = [os.pidfd_open(pid) for pid in (preload_pid(run), *run.pids().values())]

    run.child.kill()

    for end in ends:
        assert select.select([end], [], [], PATIENCE_S)[0]
        os.close(end)


@pytest.mark.parametrize("module, text", [("nosuch_module", "No module named 'nosuch_module'"), ("leaves", "SystemExit: 5"), ("json,broken", "ZeroDivisionError")])
def test_an_import_that_fails_ends_the_job_and_names_the_module(tmp_path, module, text):
    (tmp_path / "leaves.py").write_text("import sys; sys.exit(5)", encoding="utf-8")
    (tmp_path / "broken.py").write_text("1 / 0", encoding="utf-8")

    done = run(tmp_path, sys.executable, "-c", "print('runs')", n=2, preload=module)

    assert done.returncode == 1 and "runs" not in done.stdout
    assert f"--preload {module.split(',')[-1]} cannot be imported: " in done.stderr and text in done.stderr


def test_a_python_without_muster_is_told(tmp_path):
    done = run(tmp_path, sys.executable, "-I", "-S", "-c", "print('runs')")

    assert done.returncode == 1 and "runs" not in done.stdout and "is the package muster installed" in done.stderr


def test_threads_of_an_import_are_told(tmp_path):
    (tmp_path / "busy.py").write_text("import threading\nthreading.Thread(target=threading.Event().wait, name='idler', daemon=True).start()",
                                      encoding="utf-8")

    done = run(tmp_path, sys.executable, "-c", "import threading; print('alive', threading.active_count())", preload="json,busy")

    assert done.returncode == 0 and "alive 1" in done.stdout
    assert "importing busy has started threads, which forked workers lack: 1 (idler)" in done.stderr


def test_random_numbers_differ_between_workers(tmp_path):
    program = "import random, numpy; print('drawn', random.random(), numpy.random.random())"

    done = run(tmp_path, sys.executable, "-c", program, n=2, preload="numpy,random")

    drawn = [line.split()[-2:] for line in done.stdout.splitlines() if "drawn" in line]
    assert len(drawn) == 2 and drawn[0][0] != drawn[1][0] and drawn[0][1] != drawn[1][1]


@pytest.mark.parametrize("words, text", [(["true"], "must be followed by a Python program, got true"),
                                         ([sys.executable], "must be followed by a script, -m MODULE or -c CODE"),
                                         ([sys.executable, "-i", "x.py"], "got '-i'"), ([sys.executable, "-"], "got '-'"),
                                         ([sys.executable, "-u", "--foo", "x.py"], "got '--foo'")])
def test_a_command_that_is_not_a_program_of_python_is_refused(tmp_path, words, text):
    done = run(tmp_path, *words)

    assert done.returncode == 2 and text in done.stderr and done.stdout == ""


def test_resumable_workers_are_refused(tmp_path):
    done = run(tmp_path, sys.executable, "-c", "0", options=["--resumable", "state"])

    assert done.returncode == 2 and "--preload cannot be given with --resumable" in done.stderr
