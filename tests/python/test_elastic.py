"""muster.Elastic on NumPy: a model is trained while workers die; weights, random numbers and samples are those of a run without deaths."""
import os
import re
import signal

import pytest
from conftest import PATIENCE_S

# Linear regression by minibatches, with a momentum, a learning rate that falls, and batches of a generator that is state.
TRAIN = """
import random
rng = numpy.random.default_rng(5)
data = rng.standard_normal((240, 4)); target = data @ [1.0, 2.0, 3.0, 4.0]
weights, momentum = numpy.zeros(4), numpy.zeros(4)
order, schedule, notes = numpy.random.default_rng(7), {"rate": 0.1}, {}
elastic = muster.Elastic({"weights": weights, "momentum": momentum}, extra={"order": order, "schedule": schedule, "more": random.Random(3), "notes": notes}, OPTIONS)
gradient, = elastic.buffers([weights])
stop = numpy.zeros(1)
say("opened")
for step in elastic.steps(STEPS):
    with step:
        pick = order.integers(0, 240, 24)[step.rank::step.size]
        error = data[pick] @ weights - target[pick]
        gradient[:] = data[pick].T @ error / max(len(pick), 1)
        step.average(weight=len(pick))
        momentum[:] = 0.9 * momentum + gradient
        weights -= schedule["rate"] * momentum
        schedule["rate"] *= 0.999
        now = step.step
        notes[now] = "x" * (10 * now)       # 200 KB after 200 steps
    say("step", now, step.size, step.contributors, step.restored)
    if now == 30 and elastic.task in HOLD and is_first:
        wait_for("go")
say("weights", elastic.step, *(repr(float(each)) for each in weights), schedule["rate"], order.integers(0, 1000000), sum(map(len, notes.values())))
elastic.close()
"""


def program(steps, options="", hold="()"):
    return TRAIN.replace("OPTIONS", options).replace("STEPS", str(steps)).replace("HOLD", hold)


def result_of(run):
    """Of each task: the step and the weights that it has ended with."""
    return {task: words[1:] for task, _, words in run.said() if words[0] == "weights"}


def weights_of(words):
    return [float(each) for each in words[1:6]]


@pytest.fixture
def undisturbed(job):
    run = job(program(200), 3)
    run.end()
    results = result_of(run)
    assert len({str(words) for words in results.values()}) == 1
    return results[0]


@pytest.mark.parametrize("wire", ["auto", "tcp"])
def test_kills_change_no_weight(job, undisturbed, wire):
    """The mean by weight is the same however many share a batch. What a dead worker has not given is missing in one step."""
    run = job(program(200, hold="(0, 1, 2)"), 3, env={"MUSTER_WIRE": wire})
    run.kill_in_turn((1, 0), 30, 3)

    summary = run.end()

    assert summary["kills"] == 2
    results = result_of(run)
    assert len({str(words) for words in results.values()}) == 1 and len(results) >= 2, results
    step, order = results[2][0], results[2][6]
    assert (step, order) == (undisturbed[0], undisturbed[6]), "the generator of batches has gone on as without deaths"
    assert results[2][7] == undisturbed[7] == str(5 * 200 * 201), "what has grown is with all"
    assert weights_of(results[2]) == pytest.approx(weights_of(undisturbed), rel=1e-3)
    assert "byte-identical" in run.text()


def test_extra_is_rolled_back_when_a_step_runs_again(job):
    run = job("""
order, notes, inner, table = numpy.random.default_rng(7), {}, numpy.random.default_rng(8), numpy.zeros(2)
counts = {"drawn": 0, "used": 0, "left": [], "right": []}
held = {"a": [{"b": inner}], "pair": (inner, 1), "table": table, "old": numpy.random.RandomState(1), "counts": counts}
total = numpy.zeros(1)
elastic = muster.Elastic({"total": total}, extra={"order": order, "notes": notes, "held": held})
is_aborted = False
for step in elastic.steps(3):
    with step:
        table += 1
        say("number", step.step, order.integers(0, 1000000), len(notes), inner.integers(0, 1000000), held["old"].randint(1000000), table[0],
            *counts.values(), held["pair"][1])
        held["new"], held["pair"] = step.step, (inner, step.step)
        notes[step.step] = "done"
        if step.step == 2 and not is_aborted:
            is_aborted = True
            counts.update(drawn=9, used=9, left=counts["right"])  # what stands there twice now is two objects in the state
            raise muster.Aborted("a test says so")
        counts.update(drawn=step.step, used=2 * step.step, left=[step.step], right=[-step.step])
        total += 1
assert held["a"][0]["b"] is held["pair"][0] is inner and held["table"] is table and held["new"] == 3
say("total", total[0])
elastic.close()
""", 1)

    run.end()
    numbers = [words[1:] for _, _, words in run.said() if words[0] == "number"]
    assert [words[0] for words in numbers] == ["1", "2", "2", "3"] and numbers[1] == numbers[2]
    assert [words[2] for words in numbers] == ["0", "1", "1", "2"]
    assert [words[5] for words in numbers] == ["1.0", "2.0", "2.0", "3.0"]
    assert [words[6:] for words in numbers[1:]] == [["1", "2", "[1]", "[-1]", "1"]] * 2 + [["2", "4", "[2]", "[-2]", "2"]]
    assert len({tuple(words) for words in numbers}) == 3, "what is inside of dictionaries and lists is rolled back, too"
    assert run.said()[-1][2] == ["total", "3.0"]


# Worker 1 dies in step 20, and its next life opens its strategy when there is a file "go".
LATE = """
total = numpy.zeros(1)
if not is_first:
    wait_for("go")
    AGAIN
elastic = muster.Elastic({"total": total}, extra={"notes": {}})
share, = elastic.buffers([total])
for step in elastic.steps(40):
    with step:
        if step.task == 1 and step.step == 20 and is_first:
            os.kill(os.getpid(), 9)
        share[:] = 1
        step.average()
        total += share
    say("step", step.step)
say("behind", elastic.rank, elastic.step, total[0])
BEHIND
elastic.close()
say("closed")
"""


@pytest.mark.parametrize("again", ["pass", "muster.Elastic._save = lambda self: [self.strategy.set_blob('muster.extra', b'') for _ in iter(int, 1)]"],
                         ids=["begin", "constructor"])
def test_who_is_late_runs_nothing_behind_the_loop(job, again):
    """Its state is untrained: it must not pass for the first of those who have done the work."""
    run = job(LATE.replace("AGAIN", again).replace("BEHIND", ""), 2)
    run.wait_said("closed", 0)
    run.touch("go")

    summary = run.end()

    assert [(task, *words) for task, _, words in run.said() if words[0] in ("behind", "closed")] == [(0, "behind", "0", "40", "40.0"), (0, "closed")]
    assert summary["tasks"][1]["exit_code"] == 0 and "Traceback" not in run.text(), run.text()
    assert "worker:1 came back too late" in run.text()


def test_a_loop_without_with_is_refused(alone):
    """It would do its first step again and again."""
    done = alone("""
elastic = muster.Elastic({"total": numpy.zeros(1)})
for step in elastic.steps(3):
    print("step", step.step)
""")

    assert done.stdout == "step 1\n" and done.returncode == 1
    assert "RuntimeError: step 1 was not committed: the work of a step must be inside of `with step:` in the loop" in done.stderr


def test_one_member_saves_for_all(job):
    """The chief, until it dies."""
    run = job("""
if not is_first:
    wait_for("go")
elastic = muster.Elastic({"total": numpy.zeros(1)})
assert elastic.should_checkpoint is elastic.should_save_summary is (os.environ["RANK"] == "0")    # before there are members
for step in elastic.steps(6):
    with step:
        if step.task == 0 and step.step == 4:
            os.kill(os.getpid(), 9)
        elastic.strategy.barrier()
        is_mine = elastic.should_checkpoint, elastic.strategy.should_save_summary
    say("step", elastic.step, *is_mine)
say("behind", 6, elastic.should_checkpoint)
elastic.close()
""", 2)
    run.wait_said("behind", 1)
    run.touch("go")
    run.end()

    said = {task: [words[1:] for _, _, words in run.said(task)] for task in (0, 1)}
    assert said[0] == [[str(step), "True", "True"] for step in (1, 2, 3)]
    after = [words for words in said[1] if words[0] != "4"]  # of step 4 it is the chief where it begins that anew
    assert after == [[str(step), *2 * [str(step > 4)]] for step in (1, 2, 3, 5, 6)] + [["6", "True"]]


@pytest.mark.parametrize("call", ["strategy.begin()", "[strategy.set_blob('notes', b'') for _ in iter(int, 1)]"], ids=["begin", "set_blob"])
def test_who_is_late_has_no_rank(job, call):
    again = """
    with muster.Strategy() as strategy:
        strategy.register_blob("notes")
        try:
            CALL
        except muster.JobOver:
            say("late", strategy.rank)
    sys.exit()"""
    run = job(LATE.replace("    AGAIN", again.replace("CALL", call)).replace("BEHIND", ""), 2)
    run.wait_said("closed", 0)
    run.touch("go")

    run.end()

    assert [words for _, _, words in run.said(1) if words[0] == "late"] == [["late", "-1"]]


def test_who_is_back_behind_the_last_step_does_none_more(job, tmp_path):
    """The others are members still: it has their state, and begins no checkpoint, in which they would take no part."""
    late = LATE.replace("AGAIN", "pass").replace('extra={"notes": {}}', f"checkpoint={str(tmp_path / 'saved')!r}, every=20")
    run = job(late.replace("BEHIND", "open('back', 'w').close() if elastic.task else wait_for('back')"), 2)
    run.wait_said("behind", 0)
    run.touch("go")

    summary = run.end()

    assert [words[1:] for _, _, words in run.said() if words[0] == "behind"] == [["0", "40", "40.0"], ["1", "40", "40.0"]]
    assert run.step() == summary["steps"] == 40 and summary["identical"] and len(summary["digests"]) == 2


def test_who_is_late_ends_well(job):
    """The job is over before a killed worker is back."""
    run = job(program(60, hold="(0, 1)"), 2)
    run.wait_until(lambda: run.step() >= 30 and len(run.pids()) == 2, "step 30")
    pid = run.pids()[1]
    run.kill(1)
    run.touch("go")

    run.end()
    assert result_of(run)[0][0] == "60"
    assert pid not in run.pids().values()


def test_a_job_whose_workers_all_die_goes_on_from_its_checkpoint(job, tmp_path):
    folder = tmp_path / "checkpoints"
    run = job(program(60, f"checkpoint={str(folder)!r}, every=10", hold="(0, 1)"), 2)
    run.wait_until(lambda: [int(words[1]) for _, _, words in run.said() if words[0] == "step"].count(30) == 2, "step 30 of both")
    run.wait_until(lambda: any(folder.glob("checkpoint-*.manifest")), "a checkpoint")

    for pid in list(run.pids().values()):
        os.kill(pid, signal.SIGKILL)
    run.touch("go")

    run.end()
    seconds = [pid for _, pid, words in run.said(0) if words[0] == "opened"]
    steps = [int(words[1]) for _, pid, words in run.said(0) if words[0] == "step" and pid == seconds[-1]]
    assert steps[0] in (11, 21, 31) and steps[-1] == 60, (steps, run.text(), list(folder.iterdir()))
    assert {words[0] for words in result_of(run).values()} == {"60"}


def test_the_last_step_is_saved(job, tmp_path):
    """The same command finds nothing to do, and one with more steps goes on behind it, on another number of workers."""
    first_steps = []
    for steps, n in ((25, 2), (25, 1), (30, 3)):
        run = job("assert 'MUSTER_CHECKPOINT_DIR' not in os.environ\n" + program(steps, f"checkpoint={str(tmp_path / 'saved')!r}, every=10"), n)
        run.end()
        first_steps.append(next((int(words[1]) for _, _, words in run.said(0) if words[0] == "step"), None))
        assert {words[0] for words in result_of(run).values()} == {str(steps)}, run.text()

    assert first_steps == [1, None, 26]


@pytest.mark.parametrize("end", ["elastic.close()", ""])
def test_the_launcher_knows_where_the_program_saves(job, end):
    run = job(f"""
total = numpy.zeros(1)
elastic = muster.Elastic({{"total": total}}, checkpoint="saved", every=10)
for step in elastic.steps(15):
    with step:
        total += 1
        elastic.average([numpy.ones(1)])
{end}
""", 2)

    code = run.child.wait(PATIENCE_S)

    folder = run.folder / "saved"
    if end:
        assert code == 0 and f"step 15 is saved in {folder}\n" in run.text(), run.text()
        return
    told = f"step 15 is not saved: ({folder} has no checkpoint|the newest checkpoint in {folder} is of step 10).*; no worker has closed its strategy"
    assert code == 1 and re.search(told, run.text()), run.text()


def test_a_job_that_is_preempted_says_so(job, tmp_path):
    run = job(program(1000000), 2, "--preemption-grace", "60", "--checkpoint-dir", str(tmp_path / "saved"))
    run.wait_step(20)

    run.child.send_signal(signal.SIGTERM)

    run.end(42)
    ends = {run.said(task)[-1][2][1] for task in (0, 1)}
    assert len(ends) == 1, "both stop behind one step"


def test_a_checkpoint_of_other_extra_or_data_is_told(alone, tmp_path):
    text = f"""
import muster.data
try:
    total, records = numpy.zeros(1, "f4"), muster.data.numbers(20, batch=4, seed=SEED, shuffle=SHUFFLE)
    elastic = muster.Elastic({{"total": total}}, extra={{NAME: {{}}}}, data=records, checkpoint={str(tmp_path / "saved")!r})
    for step in elastic.steps(3):
        with step:
            step.share()
    print("done")
    elastic.close()
except (ValueError, muster.Error) as error:
    print(error)
"""
    for seed, shuffle, name, said in ((7, True, "notes", "done"), (8, True, "notes", "muster.data batch=4 seed=7 shuffle=yes"),
                                      (7, False, "notes", "muster.data batch=4 seed=7 shuffle=yes"),
                                      (7, True, "other", "extra must have the same names on all workers and in the checkpoint: this program has "
                                                         "['other'], the state that it is to go on from has ['notes']")):
        done = alone(text.replace("SEED", str(seed)).replace("SHUFFLE", str(shuffle)).replace("NAME", repr(name)))

        assert said in done.stdout, (seed, shuffle, name, done.stdout, done.stderr)


def test_extra_that_cannot_be_pickled_is_named(alone):
    done = alone("""
import threading
loop = {}
loop["self"] = loop
for extra in ({"notes": {"a": 1, "more": [1, threading.Lock()]}}, {"order": {"key": lambda: 1}}, {"loop": loop}):
    try:
        muster.Elastic({}, extra=extra).close()
    except TypeError as error:
        print(error)
notes = {}
elastic = muster.Elastic({}, extra={"notes": notes})
try:
    with elastic:
        notes["file"] = sys.stdin
except TypeError as error:
    print(error)
try:
    elastic.begin()
except muster.Error as error:
    print(error)
""")

    lock, function, loop, file, then = done.stdout.splitlines()
    assert lock.startswith("extra 'notes'['more'][1] must be something that can be pickled, got a _thread.lock (") and "leave it out" in lock
    assert function.startswith("extra 'order'['key'] must be something that can be pickled, got a builtins.function (")
    assert loop.startswith("extra 'loop'['self']") and "got a builtins.dict" in loop
    assert file.startswith("extra 'notes'['file'] must be something that can be pickled, got a _io.TextIOWrapper (")
    assert "extra 'notes'['file']" in then, "the strategy is abandoned by it"


def test_extra_that_is_too_large_is_told(alone):
    done = alone("""
try:
    muster.Elastic({}, extra={"text": {"a": "x" * (9 << 20)}})
except muster.ResourceExhausted as error:
    print(error)
try:
    muster.Elastic({}, extra={"text": 3})
except TypeError as error:
    print(error)
""")

    assert "at most 8388608 bytes together" in done.stdout and "state_dict()" in done.stdout, done


def test_a_step_that_stops_the_job_is_the_last_of_who_comes_back(job):
    """It comes back while the other one has yet to close, and trains nothing alone."""
    run = job("""
total = numpy.zeros(1)
elastic = muster.Elastic({"total": total})
for step in elastic.steps(1000):
    with step:
        step.strategy.all_reduce(numpy.ones(1))
        total += 1
        if step.step == 20:
            step.stop()
            if step.task == 1 and is_first:
                os.kill(os.getpid(), 9)
say("end", elastic.step, int(total[0]))
wait_for("go")
elastic.close()
""", 2)
    run.wait_said("end", 1)
    run.touch("go")
    run.end()

    assert {task: words[1:] for task, _, words in run.said() if words[0] == "end"} == {0: ["20", "20"], 1: ["20", "20"]}, run.text()


def test_the_first_step_may_be_the_last(alone):
    done = alone("""
elastic = muster.Elastic({"total": numpy.zeros(1)})
for step in elastic.steps(3):
    with step:
        step.stop()
print("end", elastic.step)
elastic.close()
""")

    assert done.stdout == "end 1\n", done.stderr


def test_the_step_behind_the_loop_is_that_of_the_state(alone, tmp_path):
    """A checkpoint may be beyond `until`; a step that has found the data over does not count, now or in the job that has saved."""
    text = f"""
import muster.data
total, records = numpy.zeros(1, "f4"), {{"data": muster.data.numbers(20, batch=4, epochs=EPOCHS)}} if EPOCHS else {{}}
elastic = muster.Elastic({{"total": total}}, checkpoint={str(tmp_path / "saved")!r} + "of" * (EPOCHS > 0), **records)
gradient, = elastic.buffers([total])
for step in elastic.steps(UNTIL):
    with step:
        if EPOCHS:
            step.share()
            step.average()
        total += 1
print(elastic.step, int(total[0]))
elastic.close()
"""
    for until, epochs, said in ((5, 0, "5 5"), (3, 0, "5 5"), (99, 2, "10 10"), (11, 2, "10 10"), (99, 2, "10 10"), (99, 3, "15 15"), (99, 3, "15 15")):
        done = alone(text.replace("UNTIL", str(until)).replace("EPOCHS", str(epochs)))

        assert done.stdout == said + "\n", (until, epochs, done.stdout, done.stderr)


def test_a_step_that_runs_again_may_go_on_instead(job):
    run = job("""
elastic = muster.Elastic({"total": numpy.zeros(1)})
tries = 0
for step in elastic.steps(4):
    with step:
        tries += 1
        if step.size == 2:
            step.stop()
            step.strategy.barrier()    # else the other one may begin this step behind the death, alone
            if step.task == 1:
                os.kill(os.getpid(), 9)
        step.strategy.all_gather(numpy.ones(1), numpy.zeros(step.size))
say("end", elastic.step, tries)
elastic.close()
""", 2, "--max-restarts", "0")
    run.child.wait(120)

    assert [words[1:] for _, _, words in run.said() if words[0] == "end"] == [["4", "5"]], run.text()


@pytest.mark.parametrize("slots", [0, 4])
def test_a_step_whose_program_catches_all_exceptions_runs_again_too(job, slots):
    run = job(f"""
total, tries = numpy.zeros(1), 0
elastic = muster.Elastic({{"total": total}}, slots={slots})
(share,) = elastic.buffers([total])
def work(step):
    step.strategy.barrier()
    if step.step == 3 and step.task == 1:
        os.kill(os.getpid(), 9)
    if step.slot_count:
        for slot in step.slots:
            share[:] = step.step
            step.add()
        step.average()
    else:
        parts = numpy.zeros(step.size)
        step.strategy.all_gather(numpy.full(1, float(step.step)), parts)
        share[:] = parts.mean()
    total[0] += share[0]
for step in elastic.steps(6):
    with step:
        tries += 1
        try:
            work(step)
        except Exception as error:
            say("caught", type(error).__name__)
say("end", total[0], tries)
elastic.close()
""", 2, "--max-restarts", "0")
    run.child.wait(120)

    assert [words for _, _, words in run.said(0)] == [["caught", "Aborted"], ["end", "21.0", "7"]], run.text()
    assert "step 3 runs again: an operation of it ended with muster.Aborted, which the program has caught" in run.text()


@pytest.mark.parametrize("call, text", [
    ("elastic.stop()", "stop() must be inside of `with step`"),
    ("next(elastic.steps(None))", "until must be the number of the last step, math.inf for no end, got None"),
    ("next(elastic.steps('9'))", "until must be the number of the last step, math.inf for no end, got '9'"),
    ("elastic.begin(); elastic.average([numpy.ones(1)], weight=2.5)", "a weight must be a whole number of examples, from 0 on, got 2.5"),
    ("elastic.begin(); elastic.average([numpy.ones(1)], weight=-1)", "a weight must be a whole number of examples, from 0 on, got -1"),
    ("elastic.begin(); elastic.average()", "step.average() without arrays is the mean of buffers, and this Elastic has none: call gradient, = "
     "elastic.buffers([weights]) before the first step, and compute into these arrays, or give arrays"),
    ("elastic.buffers([numpy.ones(2, 'i4')])", "buffers() must be like arrays of float32, float64, float16, which have means, got int32"),
    ("muster.Elastic({'total': total}, checkpoint='')", "checkpoint must be a folder, or None for no checkpoints, got ''"),
    ("other = muster.Elastic({'total': total}, slots=1); other.begin(); [other.add() for slot in other.slots]", "step.add() gives what is in buffers, "
     "and this Elastic has none: call gradient, = elastic.buffers([weights]) before the first step, and compute into these arrays"),
    ("muster.Elastic([total])", "state must be a dictionary, whose keys name its parts, got list"),
    ("muster.Elastic({'total': total}, extra=[total])", "extra must be a dictionary, whose keys name its parts, got list"),
    ("muster.Elastic({'total': total}, data=[1, 2])", "data must be a dataset of muster.data, such as muster.data.numbers(len(records), batch=32), got list"),
])
def test_a_wrong_argument_is_named(alone, call, text):
    done = alone(f"total = numpy.zeros(1)\nelastic = muster.Elastic({{'total': total}})\n{call}")

    assert f"Error: {text}\n" in done.stderr, done.stderr


def test_who_was_left_out_while_the_others_finished_ends_well(alone):
    """An operation of its step tells it so, such as that of a machine whose network was cut."""
    done = alone("""
elastic = muster.Elastic({"total": numpy.zeros(1)})
for step in elastic.steps(2):
    with step:
        raise muster.JobOver("the job has ended: all its members have left")
print("behind")
""")

    assert (done.returncode, done.stdout) == (0, "") and "Traceback" not in done.stderr, done.stderr


def test_what_changes_before_the_first_begin_counts(alone):
    done = alone("""
order = numpy.random.default_rng(7)
elastic = muster.Elastic({"total": numpy.zeros(1)}, extra={"order": order})
order.integers(0, 10, 100)
now = order.bit_generator.state
for step in elastic.steps(1):
    with step:
        print(order.bit_generator.state == now)
elastic.close()
""")

    assert done.stdout == "True\n", done.stderr


def test_a_folder_of_checkpoints_leaves_the_environment_alone(alone):
    done = alone("""
os.environ["MUSTER_CHECKPOINT_EVERY"] = "7"
with muster.Elastic({"total": numpy.zeros(1)}, checkpoint="saved", every=5):
    print({name: value for name, value in os.environ.items() if name.startswith("MUSTER_CHECKPOINT_")})
""")

    assert done.stdout == "{'MUSTER_CHECKPOINT_EVERY': '7'}\n" and done.returncode == 0, done.stderr
