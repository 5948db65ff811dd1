"""muster.data: records of files, and the position that a job shares."""
import pytest


def test_records_of_files_come_in_the_order_of_a_seed(alone, tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"line {i}\n" for i in range(10)), encoding="utf-8")

    done = alone("""
import muster.data
plain = list(muster.data.lines("a.*", batch=4, shuffle=False, epochs=1))
assert [records for records, _, _ in plain] == [[b"line %d" % i for i in part] for part in (range(4), range(4, 8), range(8, 10))], plain
assert [numbers for _, numbers, _ in plain] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
orders = [[number for _, numbers, _ in muster.data.lines("a.txt", batch=4, seed=7, epochs=2) for number in numbers] for _ in range(2)]
assert orders[0] == orders[1] and sorted(orders[0][:10]) == list(range(10)) and orders[0][:10] != orders[0][10:]
data = muster.data.numbers(6, batch=3, epochs=1)
assert len(data) == 6 and data.epoch == 0
position = numpy.asarray(data.position)
before = position.copy()
first = data.next()
assert first[0] == [b""] * 3
position[:] = before
assert data.next() == first
assert data.next() is not None and data.next() is None
fixed = muster.data.fixed("a.txt", 7, batch=1, shuffle=False)
assert fixed.next()[0] == [b"line 0\\n"]
for call, wanted in ((lambda: muster.data.lines("b.*"), muster.NotFound), (lambda: muster.data.Dataset("words"), ValueError),
                     (lambda: data.record_claims(numpy.zeros(1)), ValueError), (lambda: muster.data.lines([3]), Exception)):
    try:
        call()
        assert False
    except wanted:
        pass
kept = numpy.asarray(muster.data.numbers(5).position)    # outlives the name of its dataset
assert kept.dtype == numpy.uint64
pid = os.fork()
if pid == 0:
    try:
        data.next()
    except RuntimeError as error:
        os._exit(0 if "fork" in str(error) else 1)
    os._exit(2)
assert os.waitpid(pid, 0)[1] == 0
print("good")
""")

    assert done.stdout == "good\n", done.stderr


PROGRAM = """
import muster.data
data = muster.data.numbers(500, batch=10, seed=3, epochs=EPOCHS)
seen, stop = numpy.zeros(500, numpy.float32), numpy.zeros(1)
elastic = muster.Elastic({"seen": seen}, data=data)
(gradient,) = elastic.buffers([seen])
for step in elastic.steps(10**6):
    with step:
        numbers = step.share()[1]
        gradient[:] = 0
        gradient[numbers] = 1 / max(len(numbers), 1)    # the mean of unit vectors
        stop[0] = os.path.exists("stop")
        elastic.strategy.all_reduce(stop, "max")
        step.average()
        seen += numpy.sign(gradient)
        say("step", step.step, step.size, step.restored)
    if stop[0]:
        break
say("seen", seen.min(), seen.max(), elastic.step)
elastic.close()
"""


def ends(run):
    return [tuple(words[1:]) for _, _, words in run.said() if words[0] == "seen"]


def test_the_loop_ends_behind_the_last_pass(job):
    run = job(PROGRAM.replace("EPOCHS", "2"), 2)

    run.end()

    assert ends(run) == [("2.0", "2.0", "100")] * 2, ends(run)    # the step that found no records does not count


@pytest.mark.parametrize("micro", [False, True], ids=["records", "shares of micro-batches"])
def test_each_record_is_used_once_though_workers_die(job, micro):
    run = job((MICRO if micro else PROGRAM).replace("EPOCHS", "0"), 3)
    for victim in (1, 0):
        run.wait_step(run.step() + 60)
        before = run.wait_said("step", victim)
        run.kill(victim)
        run.wait_until(lambda: any(pid != before and words[0] == "step" for _, pid, words in run.said(victim)), "the worker back")
    run.stop()

    run.end()

    assert len(ends(run)) == 3 and len(set(ends(run))) == 1, ends(run)
    least, most, _ = map(float, ends(run)[0])
    assert 0 < least and most - least <= 1, ends(run)


# --- Shares of micro-batches ---

MICRO = """
import muster.data
data = muster.data.numbers(100, batch=8, seed=3, epochs=EPOCHS)
seen, total, stop = numpy.zeros(100, numpy.float32), numpy.zeros(100, numpy.float32), numpy.zeros(1)
with muster.Strategy() as strategy:
    strategy.register("seen", seen)
    strategy.register("position", data.position)
    micro, shares = strategy.micro_batches(4, seen.size), []
    while not stop[0] and shares is not None:
        try:
            strategy.begin()
            stop[0] = os.path.exists("stop")
            strategy.all_reduce(stop, "max")
            shares = data.shares(micro.begin(), micro.slots)
            for _, numbers, _ in shares or ():
                one = numpy.zeros(100, numpy.float32)
                one[numbers] = 1
                micro.put(one)
            if shares is not None:
                micro.sum(total)
        except muster.Aborted:
            continue
        if shares is not None:
            data.complete_step()
            seen += total
        strategy.commit()
        say("step", strategy.step, strategy.size, strategy.restored)
    say("seen", seen.min(), seen.max(), strategy.step)
"""


def test_shares_of_a_step_end_behind_the_last_pass(job):
    run = job(MICRO.replace("EPOCHS", "2"), 3)

    run.end()

    assert ends(run) == [("2.0", "2.0", "27")] * 3, ends(run)    # of 100 records 13 batches; the last step has none


def test_shares_depend_on_the_step_alone(alone):
    done = alone("""
import muster.data
def shares_of(*ranges):
    data = muster.data.numbers(20, batch=10, seed=1)
    steps = []
    for _ in range(3):
        steps.append([share for each in ranges for share in data.shares(each, 5)])
        data.complete_step()
    return steps
whole = shares_of(range(5))
assert shares_of(range(2), range(2, 2), range(2, 5)) == whole
assert sorted(number for step in whole[:2] for _, numbers, _ in step for number in numbers) == list(range(20))
data = muster.data.numbers(20, batch=10)
for call, wanted in ((lambda: data.shares(range(4, 6), 5), muster.InvalidArgument), (lambda: data.shares(range(-1, 1), 5), OverflowError)):
    try:
        call()
        assert False
    except (wanted, ValueError):
        pass
print("good")
""")

    assert done.stdout == "good\n", done.stderr
