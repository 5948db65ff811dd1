"""muster.jax: operations inside of compiled functions, and the loop over a pytree, while workers die."""
# Needs: jax
import re

import conftest
import pytest

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
    for task in (1, 0):
        run.wait_until(lambda: len(run.pids()) == 3 and run.step() >= 20, "step 20 of all")
        run.kill(task)
        run.wait_until(lambda t=task: len({pid for each, pid, words in run.said(t) if words[0] == "opened"}) == 2, "it is back")
    run.touch("go")

    summary = run.end()

    assert summary["kills"] == 2
    results = ends(run)
    assert len({tuple(words) for words in results.values()}) == 1 and 2 in results, results
    assert results[2][:2] == ["60", "60"] and "byte-identical" in run.text()
    assert [float(each) for each in results[2][2:]] == pytest.approx([1, 2, 3, 4], abs=0.1)


def test_the_program_of_the_page_trains(job):
    page = (conftest.SOURCE / "docs/python.md").read_text(encoding="utf-8")
    text = next(block for block in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S) if "muster.jax" in block)

    run = job(text, 2, prelude="", env=CPU)

    run.end()
    assert "weights [1. 2. 3. 4.]" in run.text(), run.text()
