"""Replicas: copies of the model in one member. Their calls are those of the members together."""
import conftest  # noqa: F401

# Member r has r + 1 replicas; replica i of all has the values i, i + 10, ….
REPLICAS = """
def values_of(replicas, *shape):
    return [numpy.full(shape, float(replicas.first + i)) for i in range(len(replicas))]
with muster.Strategy(replicas=int(os.environ["RANK"]) + 1) as strategy:
    strategy.begin()
    replicas = strategy.replicas
    BODY
    strategy.commit()
"""


def said(run):
    run.end()
    return {task: " ".join(words) for task, _, words in run.said()}


def test_members_have_different_numbers_of_replicas(job):
    run = job(REPLICAS.replace("BODY", "say(len(replicas), replicas.first, replicas.total, replicas.gpu(0))"), 3)

    assert said(run) == {0: "1 0 6 None", 1: "2 1 6 None", 2: "3 3 6 None"}


def test_values_are_reduced_over_all_replicas(job):
    run = job(REPLICAS.replace("BODY", """
    parts = [numpy.arange(2.0 * (replicas.first + i + 1)).reshape(-1, 2) for i in range(len(replicas))]
    numbers = [replicas.first + i + 1.0 for i in range(len(replicas))]
    gradients = [[numpy.ones(3, numpy.float32) * each, numpy.full(2, each)] for each in numbers]
    replicas.all_reduce(gradients)
    say(replicas.reduce(numbers), replicas.reduce(numbers, "mean"), replicas.reduce(numbers, "max"),
        *replicas.reduce(parts, axis=0), *replicas.reduce(parts, "mean", axis=-2),
        *gradients[-1][0], *gradients[0][1], *replicas.gather(numbers and [numpy.array([each]) for each in numbers]))"""), 3)

    rows = [[2 * row, 2 * row + 1] for part in range(1, 7) for row in range(part)]
    sums = [sum(row[i] for row in rows) for i in (0, 1)]
    expected = [21.0, 3.5, 6.0, *sums, *(each / len(rows) for each in sums), *[3.5] * 5, *range(1, 7)]
    for task, words in said(run).items():
        assert [round(float(each), 9) for each in words.split()] == [round(each, 9) for each in map(float, expected)], task


def test_variables_are_updated_by_all_replicas(job):
    run = job(REPLICAS.replace("BODY", """
    variable = numpy.full(2, 100.0, numpy.float32)
    values = [numpy.full(2, replicas.first + i, numpy.float32) for i in range(len(replicas))]
    replicas.assign(variable, values)
    mean = variable.tolist()
    replicas.assign(variable, values, "sum", add=True)
    total = variable.tolist()
    replicas.run(lambda replica, value: replica.assign(variable, value, "first"), values)
    number = numpy.zeros((), numpy.int32)
    replicas.assign(number, [1] * len(replicas), "sum")
    calls = [(lambda: replicas.assign(variable.tolist(), values), "must have the buffer protocol"),
             (lambda: replicas.assign(variable, values, "max"), "aggregation must be sum, mean or first, got 'max'"),
             (lambda: replicas.assign(variable, [each.astype(float) for each in values]), "is f64 x 2, the variable f32 x 2"),
             (lambda: replicas.run(lambda replica, value: replica.assign(value, value), values), "the same array")]
    for call, text in calls[:2 + len(replicas)]:    # one replica by itself assigns to what it likes
        try:
            call()
            assert False, text
        except (TypeError, ValueError) as error:
            assert text in str(error), error
    say(*mean, *total, *variable, number)"""), 2)

    assert said(run) == {0: "1.0 1.0 4.0 4.0 0.0 0.0 3", 1: "1.0 1.0 4.0 4.0 1.0 1.0 3"}


def test_each_replica_runs_on_its_own(job):
    run = job(REPLICAS.replace("BODY", """
    import threading
    def work(replica, value, factor):
        array = value * factor
        replica.all_reduce(array, "sum")
        whole = replica.gather(numpy.array([replica.id]))
        mean = replica.reduce(float(replica.id), "mean")
        return replica.id, replica.local, array.tolist(), whole.tolist(), float(mean), threading.get_ident()
    results = replicas.run(work, values_of(replicas, 2), [2] * len(replicas))
    assert [each[:2] for each in results] == [(replicas.first + i, i) for i in range(len(replicas))], results
    assert all(each[2:5] == ([6.0, 6.0], [0, 1, 2], 1.0) for each in results), results
    assert len({each[5] for each in results}) == len(replicas) and results[0][5] == threading.get_ident()
    say("right")"""), 2)

    assert said(run) == {0: "right", 1: "right"}


def test_errors_of_a_replica_end_the_calls_of_the_others(alone):
    done = alone("""
with muster.Strategy(replicas=3) as strategy:
    strategy.begin()
    replicas = strategy.replicas
    def leaves(replica):
        if replica.local == culprit:
            if error: raise error
            return
        replica.all_reduce(numpy.ones(1))
    for culprit, error in ((0, None), (1, None), (2, LookupError("a mistake")), (0, LookupError("a mistake"))):
        try:
            replicas.run(leaves)
        except (muster.FailedPrecondition, LookupError) as told:
            print(type(told).__name__, told)
    def differ(replica):
        replica.all_reduce(numpy.ones(1), "sum" if replica.local else "mean")
    for call in (lambda: replicas.run(differ), lambda: replicas.run(leaves, [1, 2]), lambda: replicas.reduce([1.0]),
                 lambda: replicas.gather([numpy.ones(2), numpy.ones(2), numpy.ones(2, numpy.float32)]),
                 lambda: replicas.reduce([1.0] * 3, axis=0)):
        try:
            call()
        except ValueError as told:
            print(type(told).__name__, told)
    assert replicas.run(lambda replica: replica.reduce(1.0)) == [3.0] * 3
    strategy.commit()
""")

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "replica 0 has returned; all of them must make the same calls" in lines[0] and "replica 1 has returned" in lines[1]
    assert lines[2] == lines[3] == "LookupError a mistake"
    assert lines[4].startswith("InvalidArgument the replicas of a member must make the same call, got ('all_reduce', 'mean', None) and (")
    assert lines[5] == "ValueError there must be a value for each of this member's 3 replicas, got 2"
    assert lines[6].endswith("3 replicas, got 1") and "f32" in lines[7] and "f64" in lines[7]
    assert lines[8] == "ValueError axis must be one of the 0 of the arrays, got 0"


def test_exceptions_of_a_call_keep_their_class_and_text(alone):
    """Also those whose constructors take something else than their text."""
    done = alone("""
class TwoWords(Exception):
    def __init__(self, what, why):
        super().__init__(f"{what}: {why}")
        self.why = why
class OneWord(Exception):
    def __init__(self, what):
        super().__init__(f"no {what}")
class Broken:
    def __init__(self, error): self.error = error
    def __array__(self, *args, **more): raise self.error
with muster.Strategy(replicas=3) as strategy:
    strategy.begin()
    for error in (TwoWords("array", "lost"), OneWord("array"), LookupError(7, "seven")):
        def work(replica):
            try:
                replica.reduce(Broken(error))
            except Exception as own:
                return type(own).__name__, str(own), getattr(own, "why", None)
        assert len(set(told := strategy.replicas.run(work))) == 1, told
        print(*told[0])
    strategy.commit()
""")

    assert done.stdout.splitlines() == ["TwoWords array: lost lost", "OneWord no array None", "LookupError (7, 'seven') None"], done.stderr


def test_a_death_takes_its_replicas_away(job):
    run = job("""
total, stop = numpy.zeros(1), numpy.zeros(1)
with muster.Strategy(replicas=2) as strategy:
    strategy.register("total", total)
    while not stop[0]:
        strategy.begin()
        replicas = strategy.replicas
        try:
            stop[0] = os.path.exists("stop")
            strategy.all_reduce(stop, "max")
            ones = replicas.run(lambda replica: replica.reduce(1.0))
        except muster.Aborted:
            continue
        total += 1
        strategy.commit()
        say("step", strategy.step, ones[1])
""", 2)
    run.wait_step(10)
    before = run.wait_said("step", 1)
    run.kill(1)
    run.wait_until(lambda: any(pid != before and words[0] == "step" for _, pid, words in run.said(1)), "it is back")
    run.stop()

    summary = run.end()

    assert summary["identical"] and {words[2] for _, _, words in run.said(0)} <= {"2.0", "4.0"}


def test_ctrl_c_ends_a_call_of_a_replica(alone):
    done = alone("""
import signal, threading
with muster.Strategy(replicas=2) as strategy:
    strategy.begin()
    def work(replica):
        if replica.local == 1:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            replica.reduce(1.0)
        else:
            while True: pass
    try:
        strategy.replicas.run(work)
    except KeyboardInterrupt:
        print("interrupted")
    strategy.commit()
""")

    assert done.stdout == "interrupted\n" and done.returncode == 0, done.stderr
