"""muster.jax.Elastic with slots: the state is the same bit by bit with any number of workers, and after deaths."""
# Needs: jax
import conftest
import pytest
from test_slots import result_of

PRELOAD = "jax,jax.numpy,muster.jax"
PRELUDE = conftest.PRELUDE + "import jax, jax.numpy as jnp, muster.jax\n"
CPU = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}

TRAIN = """
X = numpy.random.default_rng(3).standard_normal((240, 4)).astype(numpy.float32)
Y = X @ numpy.float32([1, 2, 3, 4])

@jax.jit
def gradient_of(state, x, y, key):
    def loss_of(weights, bias):
        kept = jax.random.bernoulli(key, 0.9, x.shape)
        return jnp.mean((kept * x @ weights + bias.astype(jnp.float32) - y) ** 2)
    return jax.value_and_grad(loss_of, (0, 1))(state["weights"], state["bias"])

@jax.jit
def update(state, gradient, shift, loss):
    momentum = 0.5 * state["momentum"] + gradient
    return {"weights": state["weights"] - 0.05 * momentum, "momentum": momentum, "bias": state["bias"] - 0.05 * shift, "loss": loss}

state = {"weights": jnp.zeros(4), "momentum": jnp.zeros(4), "bias": jnp.zeros((), jnp.bfloat16), "loss": jnp.zeros(())}
means = jax.eval_shape(gradient_of, state, X[:4], Y[:4], jax.random.key(0))
elastic = muster.jax.Elastic(state, means=means, OPTIONS)
say("opened")
for step in elastic.steps(STEPS):
    with step:
        picks = numpy.random.default_rng(step.step).integers(0, 240, (step.slot_count, 4))
        for slot in step.slots:
            given = gradient_of(step.state, X[picks[slot]], Y[picks[slot]], jax.random.fold_in(jax.random.key(step.step), slot))
            if step.task in DIE and is_first and step.step == DIE[step.task]:
                os.kill(os.getpid(), 9)
            step.add(given, weight=4 + slot)
        loss, (gradient, shift) = step.average()
        step.state = update(step.state, gradient, shift, loss)
    say("step", elastic.step, step.size)
    if elastic.step == HOLD and is_first:
        wait_for("go")
say("end", elastic.step, *(numpy.asarray(each).tobytes().hex() for each in jax.tree.leaves(elastic.state)))
elastic.close()
"""


def program(options="slots=3", steps=40, die=(), hold=0):
    text = TRAIN
    for name, value in {"OPTIONS": options, "STEPS": steps, "DIE": dict(die), "HOLD": hold}.items():
        text = text.replace(name, str(value))
    return text


def test_the_state_is_the_same_with_other_workers_and_kills(job):
    """One dies inside of a step, two while the others wait for them in the next one. Of four workers one has no slot."""
    alone, many = (job(program(options), n, *more, prelude=PRELUDE, env=CPU) for options, n, more in (
        ("slots=3", 1, ()), ("slots=None", 4, ("--constant-batch", "3"))))
    alone.end(), many.end()
    run = job(program(die=[(2, 10)], hold=20), 3, prelude=PRELUDE, env=CPU)
    run.kill_in_turn((1, 0), 20, 3)

    summary = run.end()

    assert summary["kills"] == 3 and summary["restarts"] == 3, run.text()
    assert result_of(run) == result_of(alone) == result_of(many)
    assert "byte-identical" in run.text()


@pytest.mark.parametrize("text, told", [
    ("muster.jax.Elastic({'w': w}, slots=2)", "ValueError Elastic(…) must have slots and means together"),
    ("muster.jax.Elastic({'w': w}, means=w)", "ValueError Elastic(…) must have slots and means together"),
    ("muster.jax.Elastic({'w': w}, slots=2, means={'a': jnp.zeros(2, int)})", "TypeError means: ['a'] must be of floating numbers, got int32"),
    ("use(w)", "ValueError step.add() must be given a PyTreeDef((*, *)), as means has it, got PyTreeDef(*)"),
    ("use((0.0, w[:1]))", "ValueError step.add(): [1] must be float32 of shape (3,), got float32 of shape (1,)"),
    ("use((0.0, w.astype(jnp.bfloat16)))", "ValueError step.add(): [1] must be float32 of shape (3,), got bfloat16 of shape (3,)"),
])
def test_what_is_wrong_is_told(alone, text, told):
    done = alone("""
import jax.numpy as jnp, muster.jax
w = jnp.zeros(3)
def use(given):
    elastic = muster.jax.Elastic({"w": w}, slots=2, means=(0.0, w))
    for step in elastic.steps(1):
        with step:
            for slot in step.slots:
                step.add(given)
try:
    TEXT
except (TypeError, ValueError) as error:
    print(type(error).__name__, error)
""".replace("TEXT", text))

    assert done.stdout.startswith(told), (done.stdout, done.stderr)
