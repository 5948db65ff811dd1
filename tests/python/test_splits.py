"""Splits of a strategy, and steps of micro-batches: groups by color, deaths, the same bits, and what is refused."""
import muster
import numpy
import pytest


@pytest.fixture
def strategy():
    with muster.Strategy() as each:
        yield each


def test_the_operations_of_a_group_are_among_its_members(job):
    run = job("""
with muster.Strategy() as strategy:
    rows, columns = strategy.split([0, 0, 1, 1]), strategy.split({("worker", 0): 5, 1: 6, 2: 5, ("worker", 3): 6, 9: 5})
    strategy.begin()
    rank = strategy.rank
    late = strategy.split((3, None, 3, 3))    # after begin, and rank 1 has no group
    assert (rows.rank, rows.size, columns.rank, columns.size) == (rank % 2, 2, rank // 2, 2)
    assert (late.rank, late.size) == (0, 0) if rank == 1 else late.size == 3
    assert rows.strategy is strategy
    first, other = rank // 2 * 2, rank ^ 1
    for dtype in ("f8", "i4"):
        x, y = numpy.full(3, rank, dtype), numpy.full(100_000, rank, dtype)
        rows.all_reduce([x, y], "max")
        assert (x == first + 1).all() and (y == first + 1).all()
    x = numpy.full(2, float(rank))
    columns.broadcast(x, 1)
    assert (x == rank % 2 + 2).all()
    x[:] = rank
    rows.reduce(x, "sum", root=1)
    assert rank % 2 == 0 or (x == 2 * first + 1).all()
    mine, both = numpy.full(2, float(rank)), numpy.zeros(4)
    rows.all_gather(mine, both)
    assert both.tolist() == [first, first, first + 1, first + 1]
    rows.all_to_all(both + 10 * rank, out := numpy.zeros(4))
    assert out.tolist() == [first + rank % 2 + 10 * first] * 2 + [first + rank % 2 + 10 * (first + 1)] * 2
    rows.reduce_scatter(numpy.arange(4.0), mine)
    assert mine.tolist() == [4 * (rank % 2), 4 * (rank % 2) + 2]
    rows.reduce_scatter(numpy.arange(3.0), part := numpy.zeros(1 + rank % 2), counts=[1, 2])
    assert part.tolist() == ([0], [2, 4])[rank % 2]
    rows.gather(numpy.full(1, float(rank)), gathered := numpy.zeros(2) if rank % 2 == 0 else None)
    assert gathered is None or gathered.tolist() == [first, first + 1]
    rows.scatter(numpy.arange(2.0) if rank % 2 == 1 else None, mine[:1], root=1)
    assert mine[0] == rank % 2
    rows.all_gather_uneven(numpy.full(1 + rank % 2, float(rank)), out := numpy.zeros(3), [1, 2])
    assert out.tolist() == [first, first + 1, first + 1]
    rows.all_to_all_uneven(numpy.arange(3.0), out := numpy.zeros(2 + 2 * (rank % 2)), [1, 2], [1 + rank % 2] * 2)
    assert out.tolist() == ([0, 0], [1, 2, 1, 2])[rank % 2]
    if rank % 2 == 0:
        rows.send(numpy.full(2, 7.0 + rank), 1)
    else:
        rows.receive(mine, 0)
        assert mine.tolist() == [6.0 + rank] * 2
    columns.exchange(numpy.full(1, float(rank)), 1 - columns.rank, got := numpy.zeros(1), 1 - columns.rank)
    assert got[0] == rank ^ 2
    request = columns.start("all_reduce", output=(x := numpy.full(5, float(rank))), op="sum")
    rows.barrier()
    request.wait()
    assert (x == rank + (rank ^ 2)).all() and request.contributors == 2 and request.kind == "all_reduce"
    try:
        late.all_reduce(numpy.ones(1))
        assert rank != 1
    except muster.FailedPrecondition:
        assert rank == 1
    strategy.all_reduce(x := numpy.ones(1))    # of all, as before
    assert x[0] == 4
    strategy.commit()
say("done")
""", 4)
    run.end()
    assert [words for _, _, words in run.said()] == [["done"]] * 4


def test_a_death_leaves_the_other_group_alone(job):
    run = job("""
with muster.Strategy() as strategy:
    rows = strategy.split([0, 0, 1, 1])
    total, stop = numpy.zeros(1), numpy.zeros(1)
    strategy.register("total", total)
    while not stop[0]:
        try:
            strategy.begin()
            stop[0] = os.path.exists("stop")
            strategy.all_reduce(stop, "max")
            x = numpy.ones(1)
            rows.all_reduce(x)
        except muster.Aborted:
            continue
        assert x[0] == rows.size or strategy.task // 2 == 0, (x, rows.size)
        total += 1
        strategy.commit()
        say("step", strategy.step, rows.size, rows.rank, strategy.restored)
""", 4)
    run.wait_step(3)
    run.kill(1)
    run.wait_until(lambda: any(words[4] == "True" for _, _, words in run.said(1)), "the rejoin")
    run.wait_step(run.step() + 3)
    run.stop()
    run.end()
    assert {words[2] for _, _, words in run.said(2)} == {"2"}    # never without its neighbour
    last = [words for _, _, words in run.said(1)][-1]
    assert last[2:4] == ["2", "1"], last


def test_tables_that_are_wrong_are_refused(strategy):
    for kind, text, colors in (
            (muster.InvalidArgument, "color of one task at least", []), (muster.InvalidArgument, "color of one task at least", [None, None]),
            (TypeError, "", 3), (TypeError, "a task must be an index", {"worker": 1}), (TypeError, "a task must be an index", {("worker", "0"): 1}),
            (TypeError, "", ["red"]), (ValueError, "at most 16777213", [2**24]), (ValueError, "at most", {2**32: 1}), (OverflowError, "", [-1]),
            (muster.InvalidArgument, "task type of row 0", {("w" * 300, 0): 1})):
        with pytest.raises(kind, match=text):
            strategy.split(colors)
    splits = [strategy.split([0]) for _ in range(16)]
    with pytest.raises(muster.ResourceExhausted, match="at most 16 splits"):
        strategy.split([0])
    with pytest.raises(TypeError, match="unexpected argument 'timeout'"):
        splits[0].all_reduce(numpy.ones(1), timeout=3)
    with pytest.raises(muster.FailedPrecondition, match="call begin first"):
        splits[0].barrier()
    with pytest.raises(TypeError):
        muster.Split()


def test_a_split_ends_with_its_strategy():
    strategy = muster.Strategy()
    split = strategy.split([0])
    strategy.begin()
    split.all_reduce(numpy.ones(1))
    strategy.commit()
    strategy.close()

    for call in (split.barrier, lambda: split.rank, lambda: split.all_reduce(numpy.ones(1)), lambda: split.start("barrier")):
        with pytest.raises(muster.FailedPrecondition, match="is closed"):
            call()


# --- Micro-batches ---

CURVE = """
weights, total, parts = numpy.zeros(1000, "f4"), numpy.zeros(1000, "f4"), [numpy.zeros(300, "f4"), numpy.zeros(700, "f4")]
with muster.Strategy() as strategy:
    strategy.register("weights", weights)
    micro = strategy.micro_batches(slots=7, elements=1000)
    done = 0
    while done < STEPS:
        if strategy.task == DIES and done == 5 and is_first:
            os.kill(os.getpid(), 9)
        try:
            step = strategy.begin()
            for slot in micro.begin():
                gradient = numpy.random.default_rng((step, slot)).standard_normal(1000).astype("f4") / 3
                assert micro.put([gradient[:300], gradient[300:]]) == slot
            micro.sum(parts)
        except muster.Aborted:
            continue
        weights += numpy.concatenate(parts)
        strategy.commit()
        done = step
    if strategy.rank == 0:
        say("weights", weights.tobytes().hex())
"""


def curve(job, n, dies=-1):
    run = job(f"STEPS, DIES = 30, {dies}\n" + CURVE, n)
    run.end()
    return {words[1] for _, _, words in run.said() if words[0] == "weights"}


def test_the_sum_has_the_same_bits_with_any_number_of_members_and_after_a_death(job):
    alone = curve(job, 1)

    assert len(alone) == 1 and curve(job, 2) == alone and curve(job, 3, dies=1) == alone


def test_each_slot_is_put_once_in_a_step(strategy):
    micro = strategy.micro_batches(3, 4, "f64")
    values, out = numpy.arange(4.0), numpy.zeros(4)
    assert (micro.slots, micro.elements, micro.dtype) == (3, 4, "f64")
    with pytest.raises(muster.FailedPrecondition, match="begin first"):
        micro.begin()
    strategy.begin()
    with pytest.raises(muster.FailedPrecondition, match="put: call begin of the micro-batches first"):
        micro.put(values)
    assert micro.begin() == range(0, 3)
    values.flags.writeable = False
    assert [micro.put(values), micro.put([values[:1], values[1:]])] == [0, 1]
    with pytest.raises(muster.FailedPrecondition, match="must be put first, 1 are missing"):
        micro.sum(out)
    micro.put(values)
    with pytest.raises(muster.FailedPrecondition, match="have been put; call sum"):
        micro.put(values)
    with pytest.raises((ValueError, BufferError), match="read-only"):
        micro.sum(values)
    micro.sum(out)
    assert out.tolist() == [0, 3, 6, 9]
    with pytest.raises(muster.FailedPrecondition, match="sum: call begin of the micro-batches first"):
        micro.sum(out)
    strategy.commit()


def test_arrays_of_another_shape_are_refused(strategy):
    micro = strategy.micro_batches(2, 4)
    strategy.begin()
    micro.begin()

    for wrong in (numpy.zeros(3, "f4"), numpy.zeros(4), [numpy.zeros(3, "f4"), numpy.zeros(2, "f4")], [numpy.zeros(2, "f4"), numpy.zeros(2)]):
        with pytest.raises(ValueError, match="4 elements of f32 together"):
            micro.put(wrong)
        with pytest.raises(ValueError, match="4 elements of f32 together"):
            micro.sum(wrong)
    strategy.commit()


def test_the_launcher_says_how_many_slots_there_are(job):
    run = job("STEPS, DIES = 30, -1\n" + CURVE.replace("slots=7", "slots=None") + "assert micro.slots == 7\n", 2, "--constant-batch", "7")

    run.end()

    assert {words[1] for _, _, words in run.said() if words[0] == "weights"} == curve(job, 1)


def test_a_refusal_that_the_program_mends_costs_no_restart(job):
    run = job("""
with muster.Strategy() as strategy:
    try:
        strategy.micro_batches(4, 4)
    except ValueError as error:
        say("refused", error)
    micro = strategy.micro_batches(None, 4)
    strategy.begin()
    if is_first:
        os.kill(os.getpid(), 9)
    strategy.commit()
""", 1, "--constant-batch", "8")

    summary = run.end()

    assert summary["restarts"] == 1 and {words[0] for _, _, words in run.said()} == {"refused"}, run.text()


def test_a_number_that_nobody_has_said_or_another_one_is_refused(strategy, monkeypatch):
    with pytest.raises(muster.InvalidArgument, match="MUSTER_CONSTANT_BATCH is not set; .* --constant-batch"):
        strategy.micro_batches(None, 4)
    strategy.close()
    monkeypatch.setenv("MUSTER_CONSTANT_BATCH", "8")
    with muster.Strategy() as other:
        with pytest.raises(muster.InvalidArgument, match="micro-batches of a step must be 8, .* got 4"):
            other.micro_batches(4, 4)
        assert other.micro_batches(None, 4).slots == 8
        other.begin()
        other.commit()


def test_a_program_without_micro_batches_does_not_begin_where_the_job_has_them(strategy, monkeypatch):
    strategy.close()
    monkeypatch.setenv("MUSTER_CONSTANT_BATCH", "8")
    with muster.Strategy() as other:
        with pytest.raises(muster.FailedPrecondition, match=r"MUSTER_CONSTANT_BATCH is 8, .* \(in Python strategy.micro_batches, or Elastic"):
            other.begin()


def test_options_of_micro_batches_are_checked(strategy):
    for slots, elements, dtype in ((0, 4, "f32"), (2**16 + 1, 4, "f32"), (4, 0, "f32"), (4, 4, "f8e4m3"), (4, 2**63, "f32")):
        with pytest.raises(muster.InvalidArgument, match="must be"):
            strategy.micro_batches(slots, elements, dtype)
    micro = strategy.micro_batches(4, 4, "bf16")
    with pytest.raises(muster.AlreadyExists):
        strategy.micro_batches(4, 4)
    strategy.begin()
    for _ in micro.begin():
        micro.put(numpy.full(4, 0x3f80, "u2"))
    out = numpy.zeros(4, "u2")
    micro.sum(out)
    assert out.tolist() == [0x4080] * 4    # 1 + 1 + 1 + 1
    strategy.commit()
    strategy.close()
    for call in (micro.begin, lambda: micro.put(out), lambda: micro.sum(out)):
        with pytest.raises(muster.FailedPrecondition, match="is closed"):
            call()
