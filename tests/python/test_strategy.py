"""muster.Strategy: arrays in, arrays out, while workers die by kill -9."""
import signal

import conftest
from conftest import LOOP


def test_the_counter_of_the_examples_counts(job):
    program = (conftest.SOURCE / "examples/python/counter.py").read_text(encoding="utf-8")

    run = job(program, 3)

    run.end()
    assert "total 3000" in run.text()


def test_the_same_command_again_does_no_step_beyond_the_last(job, tmp_path):
    program = (conftest.SOURCE / "examples/python/counter.py").read_text(encoding="utf-8")

    for _ in range(2):
        run = job(program, 2, "--checkpoint-dir", tmp_path / "checkpoints")
        assert run.end()["steps"] == 1000
        assert "total 2000" in run.text() and "step 1000 is saved" in run.text(), run.text()


# Worker 1 dies in step 20, and its next life opens its strategy when there is a file "go".
LATE = """
if not is_first:
    wait_for("go")
with muster.Strategy() as strategy:
    for step in strategy.steps(40):
        if strategy.task == 1 and step == 20:
            os.kill(os.getpid(), 9)
        strategy.barrier()
        strategy.commit()
    say("behind", strategy.rank)
say("closed")
"""


def test_who_is_late_runs_nothing_behind_steps(job):
    run = job(LATE, 2)
    run.wait_said("closed", 0)
    run.touch("go")

    summary = run.end()

    assert [(task, *words) for task, _, words in run.said()] == [(0, "behind", "0"), (0, "closed")]
    assert summary["tasks"][1]["exit_code"] == 0 and "Traceback" not in run.text(), run.text()
    assert "worker:1 came back too late" in run.text()


def test_kills_cost_no_step(job):
    run = job(LOOP, 3)

    for task in (1, 0, 2):  # 0 leads
        run.wait_step(run.step() + 20)
        run.wait_until(lambda: len(run.pids()) == 3, "all workers are back")
        run.kill(task)
        run.wait_until(lambda t=task: len({pid for each, pid, _ in run.said(t)}) > 1, "the killed one is back")
    run.wait_step(run.step() + 20)
    run.stop()

    summary = run.end()
    assert summary["kills"] == 3 and summary["restarts"] == 3
    steps = sorted({int(words[1]) for _, _, words in run.said() if words[0] == "step"})
    assert steps == list(range(1, steps[-1] + 1)), "each step was committed by somebody"
    assert {words[1] for _, _, words in run.said() if words[0] == "done"} == {str(steps[-1])}
    assert any(words[5] == "True" for _, _, words in run.said() if words[0] == "step"), "a joiner was told that it was restored"
    joined = {task: {words[1]: int(words[6]) for each, _, words in run.said(task) if words[0] == "step"} for task in range(3)}
    came = {words[1] for _, _, words in run.said() if words[0] == "step" and words[5] == "True"}
    assert all(said.get(step, 1) == 1 for said in joined.values() for step in came), "begin told all of the joiner"
    assert sum(max(said.get(step, 0) for said in joined.values()) for step in {words[1] for _, _, words in run.said()}) == 3
    assert "byte-identical" in run.text()
