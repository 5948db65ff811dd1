"""muster.Strategy: arrays in, arrays out, while workers die by kill -9."""
import signal

import conftest
from conftest import LOOP


def test_the_counter_of_the_examples_counts(job):
    program = (conftest.SOURCE / "examples/python/counter.py").read_text(encoding="utf-8")

    run = job(program, 3)

    run.end()
    assert "total 3000" in run.text()


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
