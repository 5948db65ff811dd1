"""How a process ends, and what the others of its job notice: exceptions, signals, forks, threads, interpreters that end."""
import signal

import pytest

STEP = """
total = numpy.zeros(1)
def step(strategy):
    strategy.begin()
    strategy.all_reduce(numpy.ones(1))
    total[0] += 1
    strategy.commit()
"""

ENDS = {
    "without close": ("strategy = muster.Strategy(); strategy.begin(); strategy.commit()", 0),
    "inside a step": ("strategy = muster.Strategy(); strategy.begin(); strategy.all_reduce(numpy.ones(1))", 0),
    "before begin": ("strategy = muster.Strategy()", 0),
    "os._exit": ("strategy = muster.Strategy(); strategy.begin(); os._exit(3)", 3),
    "sys.exit inside with": ("with muster.Strategy() as strategy:\n  strategy.begin()\n  sys.exit(4)", 4),
    "an exception": ("strategy = muster.Strategy(); strategy.begin(); raise KeyError('x')", 1),
    "an exception inside with": ("with muster.Strategy() as strategy:\n  strategy.begin()\n  raise KeyError('x')", 1),
    "a name that is deleted": ("strategy = muster.Strategy(); strategy.begin(); del strategy", 0),
    "close in atexit": ("import atexit; strategy = muster.Strategy(); atexit.register(strategy.close); strategy.begin()", 0),
    "close in a finalizer": ("class A:\n  def __del__(self): self.strategy.close()\na = A(); a.strategy = muster.Strategy(); a.strategy.begin(); me = a", 0),
    "a module that goes first": ("strategy = muster.Strategy(); strategy.begin(); sys.modules.clear()", 0),
    "mapped memory behind close": ("strategy = muster.Strategy(); a = numpy.asarray(strategy.zeros(9999)); strategy.close(); a += 1", 0),
    "mapped memory without close": ("strategy = muster.Strategy(); a = numpy.asarray(strategy.zeros(9999)); a += 1", 0),
    "one after another": ("for _ in range(3):\n  with muster.Strategy() as strategy: strategy.begin(); strategy.commit()", 0),
    "a thread that is in a call": (
        "import threading; strategy = muster.Strategy()\n"
        "threading.Thread(target=lambda: [(strategy.begin(), strategy.commit()) for _ in iter(int, 1)], daemon=True).start()\n"
        "while strategy.step < 5: pass", 0),
    "a fork that ends": (
        "strategy = muster.Strategy(); strategy.begin(); strategy.commit()\n"
        "pid = os.fork()\nif pid == 0: sys.exit(5)\nassert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5; strategy.close()", 0),
}


FULL = """
import resource, tempfile
with tempfile.TemporaryDirectory() as folder:
    os.environ["MUSTER_CHECKPOINT_DIR"] = folder
    strategy = muster.Strategy(); total = numpy.zeros(9999)
    strategy.register("total", total); strategy.begin(); strategy.commit()
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    try:
        strategy.close()
    finally:
        print(strategy.closed)
"""


def test_a_last_checkpoint_that_fails_is_an_exception_of_close(alone):
    done = alone(FULL)

    assert done.returncode == 1 and done.stdout.strip() == "True", done.stderr
    assert "the checkpoint of step 1 failed; mend the cause and start the job again: cannot write " in done.stderr


@pytest.mark.parametrize("way", ENDS)
def test_a_process_ends_clean(alone, way):
    program, code = ENDS[way]

    done = alone(program)

    assert done.returncode == code, done.stderr
    assert ("Traceback" in done.stderr) == (code == 1), done.stderr


def test_an_exception_costs_the_others_no_step(job):
    run = job(STEP + """
try_it = os.environ["RANK"] == "1" and is_first
with muster.Strategy() as strategy:
    strategy.register("total", total)
    while strategy.step < 40:
        strategy.begin()
        if try_it and strategy.step == 10:
            raise LookupError("a mistake of the program")
        strategy.all_reduce(numpy.ones(1))
        total += 1
        assert total[0] == strategy.step
        strategy.commit()
        say("step", strategy.step, strategy.size)
""", 3)

    summary = run.end()

    assert summary["restarts"] >= 1
    assert "LookupError: a mistake of the program" in run.text()
    for task in (0, 2):
        assert len({pid for _, pid, _ in run.said(task)}) == 1, "the others were not restarted"
        assert [int(words[1]) for _, _, words in run.said(task) if words[0] == "step"] == list(range(1, 41))


def test_an_exception_without_with_counts_as_a_failure(job):
    run = job("""
total, stop = numpy.zeros(1), numpy.zeros(1)
strategy = muster.Strategy()
strategy.register("total", total)
while not stop[0]:
    strategy.begin()
    stop[0] = os.path.exists("stop")
    strategy.all_reduce(stop, "max")
    if os.environ["RANK"] == "0" and is_first and strategy.step == 10:
        raise LookupError("a mistake of the program")
    total += 1
    strategy.commit()
    say("step", strategy.step)
assert total[0] == strategy.step
say("done")
strategy.close()
""", 2)
    run.wait_until(lambda: len({pid for _, pid, words in run.said(0) if words[0] == "step"}) == 2, "worker 0 is back")
    run.stop()

    summary = run.end()

    assert summary["restarts"] == 1
    assert {task for task, _, words in run.said() if words[0] == "done"} == {0, 1}


@pytest.mark.parametrize("call", ["strategy.all_reduce(numpy.ones(1))", "strategy.all_reduce(numpy.ones(100000))", "strategy.barrier()"])
def test_ctrl_c_ends_an_operation_that_waits(job, call):
    run = job(STEP + """
with muster.Strategy() as strategy:
    step(strategy)
    strategy.begin()
    if strategy.rank == 1 and is_first:
        say("away")
        wait_for("seen")
    try:
        say("calls")
        CALL
        strategy.commit()
    except KeyboardInterrupt:
        say("interrupted")
        open("seen", "w").close()
        raise
    step(strategy)
""".replace("CALL", call).replace("strategy.rank == 1", "os.environ['RANK'] == '1'"), 2)
    run.wait_said("away", 1)
    pid = run.wait_said("calls", 0)

    run.wait_until(lambda: waits(pid), "a call that waits")
    run.kill(0, signal.SIGINT)

    run.wait_said("interrupted", 0)
    run.end()


def waits(pid):
    """Its main thread sleeps in the kernel."""
    with open(f"/proc/{pid}/task/{pid}/wchan", encoding="ascii") as file:
        return "poll" in file.read()


def test_ctrl_c_ends_a_begin_that_waits(job):
    run = job("""
if os.environ["RANK"] == "1" and is_first:
    say("away")
    wait_for("seen")
with muster.Strategy() as strategy:
    say("calls")
    try:
        strategy.begin()
    except KeyboardInterrupt:
        say("interrupted")
        open("seen", "w").close()
        try:
            strategy.begin()
        except muster.Cancelled:
            say("only close is left")
        raise
    strategy.commit()
""", 2)
    pid = run.wait_said("calls", 0)
    run.wait_until(lambda: waits(pid), "a call that waits")

    run.kill(0, signal.SIGINT)

    run.wait_said("interrupted", 0)
    run.end()
    assert any(words[0] == "only" for _, _, words in run.said(0))


def test_handlers_of_signals_run_in_calls_that_wait(job):
    run = job(STEP + """
import signal
def on_signal(*_):
    say("signal")
    try:
        strategy.barrier()
    except RuntimeError as error:
        say("refused", error)
    open("seen", "w").close()
signal.signal(signal.SIGUSR1, on_signal)
with muster.Strategy() as strategy:
    step(strategy)
    strategy.begin()
    if os.environ["RANK"] == "1":
        wait_for("seen")
    say("calls")
    strategy.barrier()
    strategy.commit()
say("done")
""", 2)
    run.wait_said("calls", 0)

    run.kill(0, signal.SIGUSR1)

    run.wait_said("refused", 0)
    run.end()
    assert len([words for _, _, words in run.said() if words[0] == "done"]) == 2


def test_threads_go_on_while_a_call_waits(job):
    """Short calls keep the GIL, but not for as long as they wait: worker 1 comes only when a thread of worker 0 has run."""
    run = job(STEP + """
import threading
with muster.Strategy() as strategy:
    for i in range(5):
        step(strategy)
    strategy.begin()
    if os.environ["RANK"] == "0":
        go = threading.Event()
        def touch():
            go.wait()
            time.sleep(0.05)
            open("seen", "w").close()
        threading.Thread(target=touch).start()
        go.set()
    else:
        wait_for("seen")
    strategy.all_reduce(numpy.ones(1))
    strategy.commit()
""", 2)

    run.end()


def test_threads_take_turns(job):
    run = job("""
import threading
def work():
    for _ in range(200):
        ones = numpy.ones(10)
        strategy.all_reduce(ones)
        assert (ones == 2).all(), ones
        sums.append(1)
sums = []
with muster.Strategy() as strategy:
    strategy.begin()
    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads: each.start()
    for each in threads: each.join()
    strategy.commit()
say("done", len(sums))
""", 2)

    run.end()
    assert {words[1] for _, _, words in run.said()} == {"600"}


def test_a_fork_is_refused(job):
    run = job(STEP + """
with muster.Strategy() as strategy:
    step(strategy)
    strategy.begin()
    pid = os.fork()
    if pid == 0:
        refused = 0
        for call in (strategy.barrier, strategy.begin, strategy.commit, lambda: strategy.rank, lambda: strategy.all_reduce(numpy.ones(1))):
            try:
                call()
            except RuntimeError as error:
                refused += "forked" in str(error)
        strategy.close()
        os._exit(refused)
    refused = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    strategy.all_reduce(numpy.ones(1))
    strategy.commit()
say("refused", refused)
""", 2)

    run.end()
    assert {words[1] for _, _, words in run.said()} == {"5"}


@pytest.mark.parametrize("loop", [
    "with muster.Strategy() as strategy:\n  strategy.begin()\n  FORK\n  strategy.commit()",
    "elastic = muster.Elastic({})\nfor step in elastic.steps(1):\n  with step:\n    FORK\nelastic.close()"], ids=["Strategy", "Elastic"])
def test_a_fork_may_leave_with_by_exit(alone, loop):
    done = alone(loop.replace("FORK", "if (pid := os.fork()) == 0: sys.exit(5)") + """
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
""")

    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr


def test_who_commits_without_an_operation_of_the_others_ends_too(job):
    """Its state lacks that operation: it must not train on alone. The others end by it too, or have gone on without it."""
    run = job("""
with muster.Strategy() as strategy:
    try:
        while strategy.step < 1000:
            strategy.begin()
            if os.environ["RANK"] == "1" and strategy.step == 3:
                strategy.commit()
                continue
            strategy.all_reduce(numpy.ones(1))
            strategy.commit()
    except muster.Mismatch as error:
        say("mismatch", strategy.step, error)
        raise
""", 2, "--max-restarts", "0")

    run.child.wait(120)
    told = {task: " ".join(words) for task, _, words in run.said()}
    assert 0 not in told or "rank 1 (worker:1) has called commit of step 3 after 0 operations" in told[0], told
    assert "step 3 was committed here without an operation that other members wait for" in told[1], told


def test_who_commits_the_last_step_without_an_operation_of_the_others_learns_it_in_close(job):
    """There is no later call that could fail."""
    run = job("""
strategy = muster.Strategy()
for step in strategy.steps(3):
    try:
        if step < 3 or strategy.rank == 0:
            strategy.all_reduce(numpy.ones(1))
    except muster.Mismatch:
        open("told", "w").close()
        strategy.abandon("enough")
        break
    strategy.commit()
try:
    if strategy.step == 3 and os.environ["RANK"] == "1":
        wait_for("told")
    strategy.close()
except muster.Mismatch as error:
    say("mismatch", strategy.closed, error)
    raise
""", 2, "--max-restarts", "0")

    run.end(1)
    told = " ".join(word for _, _, words in run.said(1) for word in words)
    assert told.startswith("mismatch True step 3 was committed here without an operation that other members wait for"), run.text()


def test_who_calls_something_else_is_named(job):
    run = job("""
with muster.Strategy() as strategy:
    strategy.begin()
    try:
        strategy.all_reduce(numpy.ones(3 + strategy.rank))
    except muster.Mismatch as error:
        say("mismatch", error)
    strategy.abandon("enough")
""", 2, "--max-restarts", "0")

    run.child.wait(120)
    told = [" ".join(words) for _, _, words in run.said() if words[0] == "mismatch"]
    assert len(told) == 2 and all("3" in text and "4" in text for text in told), told


def test_a_state_of_another_shape_ends_one_worker(job):
    run = job("""
with muster.Strategy() as strategy:
    strategy.register("weights", numpy.zeros(4 if os.environ["RANK"] == "2" else 3))
    try:
        strategy.begin()
    except muster.StateMismatch as error:
        say("mismatch", error)
        raise
    strategy.commit()
say("done")
""", 3, "--max-restarts", "0")

    run.child.wait(120)
    assert [task for task, _, words in run.said() if words[0] == "mismatch"] == [2]
    assert "weights" in " ".join(run.said(2)[0][2])
    assert {task for task, _, words in run.said() if words[0] == "done"} == {0, 1}


def test_a_process_of_a_launcher_has_one_strategy_in_its_job(job):
    run = job("""
def train(**options):
    total = numpy.zeros(1)
    with muster.Strategy(**options) as strategy:
        strategy.register("total", total)
        for _ in strategy.steps(3):
            strategy.all_reduce(numpy.ones(1))
            total += strategy.contributors
            strategy.commit()
    return total[0]
say("first", train())
for phase in ("a", "b"):
    say("other", phase, train(job=phase))
try:
    train()
except muster.FailedPrecondition as error:
    say("error", error)
""", 2)

    run.end()

    assert [words for _, _, words in run.said() if words[0] in ("first", "other")] == [["first", "6.0"], ["other", "a", "6.0"], ["other", "b", "6.0"]] * 2
    errors = [" ".join(words) for _, _, words in run.said() if words[0] == "error"]
    assert len(errors) == 2 and all("has one strategy in its job" in each and 'job="NAME"' in each for each in errors), errors
