"""muster.Elastic with slots: the state is the same bit by bit with any number of workers, deaths and other numbers of workers later."""
import pytest

PRELOAD = "numpy,muster.elastic,muster.data"

# A regression whose batches, noise and learning rate are state, or follow from the step and the slot.
TRAIN = """
rng = numpy.random.default_rng(5)
data = rng.standard_normal((240, 4)).astype("f4"); target = data @ numpy.float32([1, 2, 3, 4])
weights, momentum, bias = numpy.zeros(4, "f4"), numpy.zeros(4, "f4"), numpy.zeros(1, KIND)
order, schedule = numpy.random.default_rng(7), {"rate": 0.1, "loss": 0.0}
elastic = muster.Elastic({"weights": weights, "momentum": momentum, "bias": bias}, extra={"order": order, "schedule": schedule}, OPTIONS)
gradient, = elastic.buffers([weights])
shift, loss = elastic.buffers([bias, numpy.zeros(1, "f8")])
say("opened")
for step in elastic.steps(STEPS):
    with step:
        picks = order.integers(0, 240, 3 * step.slot_count + 1)
        for slot in step.slots:
            pick = picks[slot::step.slot_count]
            noise = numpy.random.default_rng((step.step, slot)).standard_normal(4).astype("f4")
            error = data[pick] @ (weights + noise / 100) + bias.astype("f4") - target[pick]
            gradient[:], shift[:], loss[:] = data[pick].T @ error / len(pick), error.mean(), (error ** 2).mean()
            if step.task in DIE and is_first and step.step == DIE[step.task]:
                os.kill(os.getpid(), 9)
            step.add(weight=len(pick))
        step.average()
        momentum[:] = 0.9 * momentum + gradient
        weights -= numpy.float32(schedule["rate"]) * momentum
        bias -= (schedule["rate"] * shift).astype(bias.dtype)
        schedule["rate"] *= 0.999 if loss[0] < 1 else 0.998
        schedule["loss"] = float(loss[0])
    say("step", elastic.step, step.size, step.restored)
    if elastic.step == HOLD and is_first:
        wait_for("go")
say("end", elastic.step, *(each.tobytes().hex() for each in (weights, momentum, bias)), *schedule.values(), order.integers(0, 1000000))
elastic.close()
"""


def program(options="slots=7", steps=60, die=(), hold=0, kind="'f8'"):
    words = {"OPTIONS": options, "STEPS": steps, "DIE": dict(die), "HOLD": hold, "KIND": kind}
    text = TRAIN
    for name, value in words.items():
        text = text.replace(name, str(value))
    return text


def result_of(run):
    """What all have ended with."""
    results = {tuple(words[1:]) for _, _, words in run.said() if words[0] == "end"}
    assert len(results) == 1, results
    return results.pop()


known = []


@pytest.fixture
def undisturbed(job):
    """By one worker, once for all cases."""
    if not known:
        run = job(program(), 1)
        run.end()
        known.append(result_of(run))
    return known[0]


@pytest.mark.parametrize("n, wire", [(3, "auto"), (4, "tcp")])
def test_the_state_is_the_same_with_other_workers_and_kills(job, undisturbed, n, wire):
    """One dies inside of a step, two while the others wait for them in the next one."""
    run = job(program(die=[(2, 20)], hold=30), n, env={"MUSTER_WIRE": wire})
    run.kill_in_turn((1, 0), 30, n)

    summary = run.end()

    assert summary["kills"] == 3 and summary["restarts"] == 3, run.text()
    assert result_of(run) == undisturbed
    assert "byte-identical" in run.text()


def test_the_launcher_says_how_many_slots_there_are(job, undisturbed):
    run = job(program("slots=None") + "assert elastic.slot_count == 7\n", 2, "--constant-batch", "7")

    run.end()

    assert result_of(run) == undisturbed


def test_another_number_of_workers_goes_on_from_a_checkpoint(job, undisturbed, tmp_path):
    """More than there are slots: one of them has none."""
    for steps, n in ((20, 2), (60, 8)):
        run = job(program(f"slots=7, checkpoint={str(tmp_path / 'saved')!r}, every=10", steps), n)
        run.end()

    assert next(words for _, _, words in run.said() if words[0] == "step")[1] == "21"
    assert result_of(run) == undisturbed


def test_types_that_are_narrow_are_summed_in_wider_ones(job):
    """A bias of 16 bits; and all of f32, so that the sum is of f32."""
    ends = []
    for n in (1, 3):
        run = job(program("slots=5", 30, kind="'f2'").replace('"f8"', '"f4"'), n)
        run.end()
        ends.append(result_of(run))

    assert ends[0] == ends[1]


# --- Data ---

DATA = """
import muster.data
data = muster.data.numbers(100, batch=8, seed=3, epochs=EPOCHS)
total, seen, used = numpy.zeros(100, "f4"), numpy.zeros(100, "i4"), numpy.zeros(1, "i8")
elastic = muster.Elastic({"total": total, "seen": seen, "used": used}, data=data, slots=4)
one, hit = elastic.buffers([total, seen.astype("f4")])
say("opened")
for step in elastic.steps(10**6):
    with step:
        for slot in step.slots:
            records, numbers, epoch = step.share()
            one[:], hit[:] = numpy.sin(total), 0
            hit[numbers] = 1 / max(len(numbers), 1)
            if step.task == DIES and is_first and step.step == 20:
                os.kill(os.getpid(), 9)
            step.add()
        step.average()
        total += one + hit
        seen += hit > 0
        used += 1
    say("step", elastic.step)
    if elastic.step == 22 and is_first and DIES >= 0:
        wait_for("go")
say("end", elastic.step - used[0], seen.min(), seen.max(), total.tobytes().hex())
elastic.close()
"""


def test_each_record_is_used_once_and_the_last_pass_ends_the_loop(job):
    ends = []
    for n, dies in ((1, -1), (3, 1), (6, -1)):
        run = job(DATA.replace("EPOCHS", "4").replace("DIES", str(dies)), n)
        if dies >= 0:
            run.wait_said("opened", dies, 2)
            run.touch("go")
        summary = run.end()
        ends.append(result_of(run))
        assert summary["kills"] == (dies >= 0)
        assert summary["steps"] == 4 * 13, "no step was begun behind the last pass"

    assert ends[0][:3] == ("0", "4", "4") and len(set(ends)) == 1, ends


# --- What is wrong ---

USE = """
import random
weights = numpy.ones(2, "f4")
order, inner, old = numpy.random.default_rng(1), numpy.random.default_rng(3), numpy.random.RandomState(4)
words = {"a": [(random.Random(2), 3)], "b": {"c": inner, "d": [old]}}
elastic = muster.Elastic({"weights": weights}, extra={"order": order, "words": words}, slots=2)
gradient, = elastic.buffers([weights])
"""
LOOP = """
try:
    for step in elastic.steps(2):
        with step:
            CALL
except (RuntimeError, ValueError) as error:
    print(type(error).__name__, error)
"""


def check_told(alone, program, call, text):
    """The program has `call` in the loop over its steps, and prints its error."""
    done = alone(program + LOOP.replace("CALL", call))

    assert done.stdout.startswith(text), (done.stdout, done.stderr)


EACH = "for slot in step.slots: "


@pytest.mark.parametrize("call, text", [
    ("step.average()", "RuntimeError the mean of a step with slots is that of `for slot in step.slots: …; step.add()`"),
    (EACH + "pass", "RuntimeError slot 0 was not added: call step.add() at the end of each slot"),
    (EACH + "step.add(); step.add()", "RuntimeError step.add() must be inside of `for slot in step.slots`, once for each slot"),
    (EACH + "step.add(); break\n            step.average()", "RuntimeError the mean of a step with slots must come behind `for slot in step.slots`, which must go"),
    (EACH + "step.add(); step.average()", "RuntimeError the mean of a step with slots must come behind `for slot in step.slots`, which must go"),
    (EACH + "step.add()", "RuntimeError step 1 has gone through its slots and not taken their mean: call step.average() behind the loop"),
    (EACH + "step.add()\n            list(step.slots)", "RuntimeError step.slots once more before step.average()"),
    ("pass", "RuntimeError step 1 has not gone through its slots"),
    (EACH + "order.random(); step.add()", "RuntimeError a generator of extra was drawn from inside of `for slot in step.slots`"),
    (EACH + "words['a'][0][0].random(); step.add()", "RuntimeError a generator of extra was drawn from inside of `for slot in step.slots`"),
    (EACH + "words['b']['c'].random(); step.add()", "RuntimeError a generator of extra was drawn from inside of `for slot in step.slots`"),
    (EACH + "inner.random(); step.add()", "RuntimeError a generator of extra was drawn from inside of `for slot in step.slots`"),
    (EACH + "old.rand(); step.add()", "RuntimeError a generator of extra was drawn from inside of `for slot in step.slots`"),
    (EACH + "step.add(weight=-1)", "ValueError a weight must be a whole number of examples, from 0 on, got -1"),
    (EACH + "step.add()\n            step.average(weight=2)", "ValueError with slots average() takes no arrays and no weight"),
    (EACH + "step.add()\n            step.average([weights])", "ValueError with slots average() takes no arrays and no weight"),
    ("elastic.buffers([weights])", "RuntimeError buffers() must be before the first step of an Elastic with slots"),
    (EACH + "step.share()", "RuntimeError share() needs a dataset"),
])
def test_a_step_that_uses_its_slots_wrongly_is_told(alone, call, text):
    check_told(alone, USE, call, text)


@pytest.mark.parametrize("slots", ["-1", "True", "2.0", "'8'"])
def test_what_is_not_a_number_of_slots_is_told(alone, slots):
    done = alone(f"try:\n    muster.Elastic({{}}, slots={slots})\nexcept ValueError as error:\n    print(error)")

    assert done.stdout == ("slots must be a whole number of slots, None for that of `muster run --constant-batch`, or 0 for steps without slots, "
                           f"got {slots}\n"), done


@pytest.mark.parametrize("slots, options, text", [
    ("65537", (), "must be 1 to 65536, got 65537"),
    ("None", (), "and MUSTER_CONSTANT_BATCH is not set; give a number, or start the job with muster run --constant-batch SLOTS"),
    ("4", ("--constant-batch", "8"), "must be 8, as MUSTER_CONSTANT_BATCH (muster run --constant-batch) says, got 4 from this program; give both"),
])
def test_a_number_of_slots_that_cannot_be_is_told_and_ends_the_job(job, slots, options, text):
    """Another life of the worker would ask for the same."""
    run = job(f"for step in muster.Elastic({{'total': numpy.zeros(1)}}, slots={slots}).steps(2):\n    pass\n", 1, *options)

    summary = run.end(1)

    assert text in run.text() and summary["restarts"] == 0, run.text()


def test_a_loop_without_slots_is_refused_where_the_job_has_them(job):
    run = job("""
elastic = muster.Elastic({"total": numpy.zeros(1)})
try:
    elastic.slots
except RuntimeError as error:
    say("refused", error)
for step in elastic.steps(2):
    pass
""", 1, "--constant-batch", "8")

    run.end(1)

    assert run.said()[0][2][:5] == "refused step.slots needs slots: Elastic(…,".split()
    assert "Elastic(slots=None)) before the first begin, or run without --constant-batch" in run.text() and "restart 1" not in run.text()


def test_weights_that_are_large_are_summed_exactly(alone):
    """float32 holds no odd number above 2^24: there the sum of these would be 2^24."""
    done = alone("""
values, weights, out = [0.0, 1.0, 1.0, numpy.nan], [2**24, 1, 1, 0], numpy.zeros(1, "f4")
elastic = muster.Elastic({"out": out}, slots=4)
mean, = elastic.buffers([out])
for step in elastic.steps(1):
    with step:
        for slot in step.slots:
            mean[:] = values[slot]
            step.add(weight=weights[slot])
        step.average()
        print(mean[0] == numpy.float32(2 / (2**24 + 2)))
elastic.close()
""")

    assert done.stdout.startswith("True"), (done.stdout, done.stderr)
