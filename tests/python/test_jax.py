"""muster.jax: operations inside of compiled functions, and the loop over a pytree, while workers die."""
# Needs: jax
import re
import signal

import conftest
import pytest

PRELOAD = "jax,jax.numpy,muster.jax"
PRELUDE = conftest.PRELUDE + """
import jax, jax.numpy as jnp, muster.jax
"""
CPU = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}

TRAIN = """
X = numpy.random.default_rng(3).standard_normal((240, 4)).astype(numpy.float32)
Y = X @ numpy.float32([1, 2, 3, 4])

@JIT
def train(state, x, y, count, token):
    def loss_of(weights):
        return jnp.sum((x @ weights - y) ** 2 * (jnp.arange(len(x)) < count)) / jnp.maximum(count, 1)
    loss, gradient = jax.value_and_grad(loss_of)(state["weights"])
    (loss, gradient), token = muster.jax.pmean((loss, gradient), token, weight=count)
    momentum = 0.5 * state["momentum"] + gradient
    return {"weights": state["weights"] - 0.05 * momentum, "momentum": momentum, "updates": state["updates"] + 1}, loss, token

def share_of(step, rank, size):
    pick = numpy.random.default_rng(step).integers(0, 240, 24)[rank::size]
    padded = numpy.resize(pick, 24) if len(pick) else numpy.zeros(24, int)
    return X[padded], Y[padded], len(pick)

zeros = numpy.full(4, numpy.float32(os.environ["RANK"]))  # all begin with rank 0's
elastic = muster.jax.Elastic({"weights": zeros, "momentum": jnp.zeros(4, jnp.bfloat16).astype(jnp.float32), "updates": 0})
elastic.rehearse(train, elastic.state, *share_of(1, 0, 1))
say("opened")
for step in elastic.steps(STEPS):
    with step:
        step.state, loss, _ = train(step.state, *share_of(step.step, step.rank, step.size), step.token)
        now = step.step
    say("step", now, step.size, step.contributors, step.restored)
    if now == 20 and elastic.task in HOLD and is_first:
        wait_for("go")
say("end", elastic.step, int(elastic.state["updates"]), *(f"{each:.9g}" for each in elastic.state["weights"].tolist()))
elastic.close()
"""


def program(steps, hold="()", jit="muster.jax.jit"):
    return TRAIN.replace("STEPS", str(steps)).replace("HOLD", hold).replace("JIT", jit)


def ends(run):
    return {task: words[1:] for task, _, words in run.said() if words[0] == "end"}


@pytest.mark.parametrize("jit", ["muster.jax.jit", "jax.jit", "muster.jax.jit(donate_argnums=0)"], ids=["muster", "plain", "donated"])
def test_kills_change_nothing_that_the_state_can_tell(job, jit):
    run = job(program(60, "(0, 1, 2)", jit), 3, prelude=PRELUDE, env=CPU)
    run.kill_in_turn((1, 0), 20, 3)

    summary = run.end()

    assert summary["kills"] == 2
    results = ends(run)
    assert len({tuple(words) for words in results.values()}) == 1 and 2 in results, results
    assert results[2][:2] == ["60", "60"] and "byte-identical" in run.text()
    assert [float(each) for each in results[2][2:]] == pytest.approx([1, 2, 3, 4], abs=0.1)


def test_the_program_of_the_page_trains(job):
    page = (conftest.SOURCE / "docs/python.md").read_text(encoding="utf-8")
    text = next(block for block in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S) if "muster.jax" in block)

    run = job(text, 2, prelude="", preload="", env=CPU)

    run.end()
    assert "weights [1. 2. 3. 4.]" in run.text(), run.text()


def test_operations_give_what_the_members_have(job):
    run = job("""
ALL = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint32", "uint64", "int8", "uint8")
jax.config.update("jax_enable_x64", True)
rank = int(os.environ["RANK"])
strategy = muster.Strategy()
token = muster.jax.Token(strategy)

@muster.jax.jit
def several(tree, bits, token):
    total, token = muster.jax.all_reduce(tree, token)
    most, token = muster.jax.all_reduce(tree, token, "max")
    mean, token = muster.jax.pmean(tree["float32"], token)
    weighted, token = muster.jax.pmean(tree["float64"], token, weight=1 + 2 * tree["int32"][0, 0])
    first, token = muster.jax.broadcast((tree, bits), token, root=1)
    both, token = muster.jax.all_reduce([bits], token, "and")
    return total, most, mean, weighted, first, both[0], token

tree = {name: jnp.full((2, 3), rank, name) for name in ALL} | {"none": jnp.zeros((0, 2)), "one": jnp.float32(rank)}
strategy.begin()
total, most, mean, weighted, first, both, token = several(tree, jnp.array([rank, 1], bool), token)
total2, token = muster.jax.all_reduce(tree["one"], token)  # also outside of jit
strategy.commit()
for name in ALL:
    assert total[name].dtype == name and total[name].shape == (2, 3) and (total[name] == 3).all(), (name, total[name])
    assert (most[name] == 2).all() and (first[0][name] == 1).all() and (tree[name] == rank).all(), name
assert total["none"].shape == (0, 2) and total["one"] == 3 and total["one"].shape == () and total2 == 3
assert (mean == 1).all() and jnp.allclose(weighted, (3 + 2 * 5) / 9) and both.tolist() == [False, True] and first[1].all(), (mean, weighted, both)
say("right", strategy.rank)
strategy.close()
""", 3, prelude=PRELUDE, env=CPU)

    run.end()
    assert len([1 for _, _, words in run.said() if words[0] == "right"]) == 3, run.text()


def test_small_arrays_of_a_type_travel_as_one(job):
    run = job("""
sent, plain = [], jax.ffi.ffi_call
def ffi_call(target, results, **words):
    sent.append([each.size for each in results[:-1]])
    return plain(target, results, **words)
jax.ffi.ffi_call = ffi_call
with muster.Strategy() as strategy:
    strategy.begin()
    rank, token = strategy.rank, muster.jax.Token(strategy)
    tree = {"a": [jnp.full((i, 2), rank + i, jnp.float32) for i in range(4)], "b": jnp.full(20000, rank + 1.0, jnp.float32),
            "c": (jnp.array(rank, jnp.int32), jnp.arange(3, dtype=jnp.int32)), "d": jnp.full(2, rank + 0.5, jnp.bfloat16)}
    for call in (lambda tree, token: muster.jax.all_reduce(tree, token), lambda tree, token: muster.jax.broadcast(tree, token, root=1)):
        got, token = jax.jit(call)(tree, token)
        assert jax.tree_util.tree_map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), got, tree)
        say(*sent, *(float(each) for leaf in jax.tree_util.tree_leaves(got) for each in leaf.reshape(-1)[:2]))
        sent.clear()
    strategy.commit()
""", 2, prelude=PRELUDE, env=CPU)

    run.end()
    sums = [3, 3, 5, 5, 7, 7, 3, 3, 1, 0, 2, 2, 2]
    firsts = [2, 2, 3, 3, 4, 4, 2, 2, 1, 0, 1, 1.5, 1.5]
    for _, _, words in run.said():
        text = " ".join(words)
        sizes, values = text[:text.rindex("]") + 1], [float(each) for each in text[text.rindex("]") + 1:].split()]
        assert sizes in ("[20000, 2, 12, 4]", "[20000] [2] [12] [4]") and values in (sums, firsts), text
    assert len(run.said()) == 4


def test_arguments_are_checked_when_the_function_is_compiled(job):
    run = job("""
strategy = muster.Strategy()
token = muster.jax.Token(strategy)
x = jnp.ones(3)

def refused(what, function, *arguments):
    try:
        muster.jax.jit(function)(*arguments)
    except (TypeError, ValueError) as error:
        assert what in str(error), (what, error)
        say("refused")

refused("['a']['b'] must be of float32", lambda x, t: muster.jax.all_reduce({"a": {"b": x}}, t), x.astype(complex), token)
refused("must be of floating numbers, got int32", muster.jax.pmean, x.astype(int), token)
refused("token must be a muster.jax.Token, got DynamicJaxprTracer", muster.jax.pmean, x, x)
refused("op must be one of sum, mean", lambda x, t: muster.jax.all_reduce(x, t, "plus"), x, token)
refused("root must be a rank", lambda x, t: muster.jax.broadcast(x, t, x), x, token)
refused("weight must be one whole number, got float32 of shape (3,)", lambda x, t: muster.jax.pmean(x, t, x), x, token)
refused("strategy must be a muster.Strategy", lambda x: muster.jax.Token(x), x)
strategy.begin(), strategy.commit(), strategy.close()
try:
    muster.jax.Elastic({"key": jax.random.key(0)})
except TypeError as error:
    say("refused", error)
""", 1, prelude=PRELUDE, env=CPU)

    run.end()
    assert [words[0] for _, _, words in run.said()] == ["refused"] * 8, run.text()


def test_exceptions_come_out_as_themselves(job):
    run = job("""
rank = int(os.environ["RANK"])
strategy = muster.Strategy()
token = muster.jax.Token(strategy)
plain = jax.jit(muster.jax.all_reduce)

def seen(function):
    try:
        function()
    except Exception as error:
        say(type(error).__name__, error)

seen(lambda: muster.jax.jit(muster.jax.all_reduce)(jnp.ones(3), token))  # before begin
strategy.begin()
with muster.jax.errors():
    jax.block_until_ready(plain(jnp.ones(3), token))  # none
seen(lambda: muster.jax.jit(muster.jax.all_reduce)(jnp.ones(3 + rank), token))  # of different shapes
seen(lambda: jax.block_until_ready(plain(jnp.ones(3 + rank), token)))  # JAX's error
def ours():
    with muster.jax.errors():
        jax.block_until_ready(plain(jnp.ones(3 + rank), token))
seen(ours)
def theirs():
    with muster.jax.errors():
        raise jax.errors.JaxRuntimeError("INTERNAL: of somebody else")
seen(theirs)
strategy.close()
""", 2, "--max-restarts", "0", prelude=PRELUDE, env=CPU)

    run.child.wait(conftest.PATIENCE_S)
    for task in (0, 1):
        classes = [words[0] for _, _, words in run.said(task)]
        assert classes == ["FailedPrecondition", "Mismatch", "JaxRuntimeError", "Mismatch", "JaxRuntimeError"], run.text()


def test_a_token_orders_operations_that_do_not_depend_on_one_another(job):
    """Ranks trace them with different work before each, so that XLA is free to run them in different orders."""
    run = job("""
rank = int(os.environ["RANK"])
strategy = muster.Strategy()

@muster.jax.jit
def step(x, token):
    results = []
    for i in range(8):
        work = x[:i + 1]
        for _ in range(20 if i % 2 == rank else 0):
            work = jnp.sin(work @ jnp.ones((i + 1, i + 1))) * 0 + 1
        result, token = muster.jax.all_reduce(work, token)
        results.append(result)
    return results, token

token = muster.jax.Token(strategy)
for _ in range(50):
    strategy.begin()
    results, token = step(jnp.ones(8), token)
    assert all((result == 2).all() for result in results), results
    strategy.commit()
say("right")
strategy.close()
""", 2, prelude=PRELUDE, env=CPU)

    run.end()
    assert [words for _, _, words in run.said()] == [["right"], ["right"]], run.text()


def test_a_state_of_another_shape_is_refused(job):
    run = job("""
elastic = muster.jax.Elastic({"a": jnp.zeros(2), "b": jnp.zeros(3, jnp.bfloat16)})
def commit(state):
    try:
        for step in elastic.steps(2):
            with step:
                step.state = state
    except ValueError as error:
        say("refused", error)
if os.environ["CASE"] == "shape":
    commit({"a": jnp.zeros(3), "b": jnp.zeros(3, jnp.bfloat16)})
else:
    commit({"a": jnp.zeros(2)})
""", 1, "--max-restarts", "0", prelude=PRELUDE, env=CPU | {"CASE": "shape"})
    other = job((run.folder / "program.py").read_text(), 1, "--max-restarts", "0", prelude="", env=CPU | {"CASE": "tree"})

    run.child.wait(conftest.PATIENCE_S), other.child.wait(conftest.PATIENCE_S)
    assert "state['a'] must stay float32 of shape (2,), got float32 of shape (3,)" in " ".join(run.said()[0][2]), run.text()
    assert "must stay a PyTreeDef" in " ".join(other.said()[0][2]), other.text()


def test_an_interrupt_ends_a_compiled_function_that_waits(job):
    """JAX raises it in the main thread; the operation waits in one of XLA's, and the others must not wait for it."""
    run = job("""
import signal
def work(x, token):
    for _ in range(4):
        x = jnp.sin(x @ x)
    return muster.jax.all_reduce(x, token)[0]
compiled = jax.jit(work)
elastic = muster.jax.Elastic({})
elastic.rehearse(compiled, jnp.ones((512, 512)))
say("opened")
for step in elastic.steps(3):
    with step:
        if step.task == 1 and step.step == 2 and is_first:
            say("waits")
            wait_for("go")
        say("calls", step.step)
        jax.block_until_ready(compiled(jnp.ones((512, 512)), step.token))
        now = step.step
    say("step", now)
elastic.close()
""", 2, prelude=PRELUDE, env=CPU)
    run.wait_said("waits", 1)
    run.wait_said("calls", 0, 2)

    run.kill(0, signal.SIGINT)
    run.wait_until(lambda: "KeyboardInterrupt" in run.text(), "the traceback")
    run.wait_until(lambda: len({pid for _, pid, _ in run.said(0)}) == 2, "it is back")
    run.touch("go")

    run.end()


def test_a_state_that_is_set_before_the_first_begin_counts(alone):
    """As of a file that the program has read, also where a rehearsal comes between."""
    done = alone("""
import jax.numpy as jnp
import muster.jax
elastic = muster.jax.Elastic({"weights": jnp.zeros(2)})
elastic.state = {"weights": jnp.ones(2)}
elastic.rehearse(muster.jax.jit(lambda state, token: muster.jax.pmean(state, token), donate_argnums=0), elastic.state)
for step in elastic.steps(1):
    with step:
        print(step.state["weights"].tolist())
elastic.close()
""")

    assert done.stdout == "[1.0, 1.0]\n", done.stderr
