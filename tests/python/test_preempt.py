"""Preemption by the program itself: handlers of signals ask for it inside of calls, threads look for it beside them."""
import signal

import pytest
from test_ends import waits

PROGRAM = """
import signal, threading
def on_signal(*_):
    strategy.preempt("the machine goes away")
    say("asked")
    open("seen", "w").close()
signal.signal(signal.SIGUSR1, on_signal)
away = os.environ["RANK"] == "1" and is_first
strategy = muster.Strategy()
try:
    while True:
        if AT == "begin" and strategy.step == 3 and away:
            wait_for("seen")
        say("calls", strategy.step + 1)
        strategy.begin()
        if AT != "begin" and strategy.step == 3 and away:
            wait_for("seen")
        say("waits", strategy.step)
        CALL
        strategy.commit()
except muster.Cancelled:
    say("stopped", strategy.step, strategy.preempted)
strategy.close()
sys.exit(42)
"""

CALLS = {
    "begin": "strategy.barrier()",
    "barrier": "strategy.barrier()",
    "a short operation": "strategy.all_reduce(numpy.ones(1))",
    "a long operation": "strategy.all_reduce(numpy.ones(100000))",
}


@pytest.mark.parametrize("at", CALLS)
def test_a_handler_preempts_the_job_inside_a_call(job, at):
    run = job(PROGRAM.replace("AT", repr(at)).replace("CALL", CALLS[at]), 2, "--preemption-grace", "60")
    word, step = ("calls", 4) if at == "begin" else ("waits", 3)
    run.wait_until(lambda: any(words == [word, str(step)] for _, _, words in run.said(0)), "worker 0 is there")
    pid = run.pids()[0]
    run.wait_until(lambda: waits(pid), "a call that waits")

    run.kill(0, signal.SIGUSR1)

    summary = run.end(42)
    stopped = [words for _, _, words in run.said() if words[0] == "stopped"]
    assert len(stopped) == 2 and stopped[0] == stopped[1] and stopped[0][2] == "True", stopped
    assert summary["preempted"] == {"step": int(stopped[0][1]), "saved": False} and summary["restarts"] == 0, summary


def test_preempted_is_read_beside_a_call_that_waits(job):
    """Worker 1 comes to the barrier of step 2 only when a thread of worker 0 has read it."""
    run = job("""
import threading
def look():
    go.wait()
    time.sleep(0.01)
    say("read", strategy.preempted)
    open("seen", "w").close()
go = threading.Event()
with muster.Strategy() as strategy:
    if os.environ["RANK"] == "0":
        threading.Thread(target=look).start()
    for _ in range(2):
        strategy.begin()
        if strategy.step == 2:
            go.set()
            if os.environ["RANK"] == "1":
                wait_for("seen")
        strategy.barrier()
        strategy.commit()
""", 2)

    run.end()
    assert [words for _, _, words in run.said(0)] == [["read", "False"]]
