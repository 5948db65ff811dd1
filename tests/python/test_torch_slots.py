"""muster.torch.Elastic with slots: the model is the same bit by bit with any number of workers, and after deaths."""
# Needs: torch
import conftest
import pytest
from test_docs import blocks
from test_slots import check_told, result_of

PRELOAD = "torch,torch._dynamo,muster.torch,muster.data"
HEAD = """
import torch, torch.nn as nn, torch.nn.functional as F
import muster.torch, muster.data
torch.set_num_threads(1)
torch.manual_seed(int(os.environ.get("RANK", 0)) if is_first else 9)  # all begin with rank 0's weights
X = torch.randn(300, 8, generator=torch.Generator().manual_seed(3)); Y = (X[:, 0] * X[:, 1] > 0).long()
def digest(model, *optimizers):
    states = [optimizer.state[each] for optimizer in optimizers for each in model.parameters() if each in optimizer.state]
    tensors = [*model.state_dict().values(), *(value for state in states for _, value in sorted(state.items()))]
    return b"".join(each.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes() for each in tensors).hex()
"""

# Statistics, dropout, counters, a parameter that no slot uses and one that only slot 1 does, a mask that is infinite, clipped gradients.
TRAIN = HEAD + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
        self.unused, self.rare = nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(2))
        self.register_buffer("mask", torch.full((2, 2), -torch.inf).triu(1))
        self.register_buffer("constant", torch.arange(1, 101) / 7)
        self.register_buffer("seen", torch.zeros(3, dtype=torch.uint8))
    def forward(self, x, slot):
        self.seen[1] += 1
        return self.layers(x) + (self.rare if slot == 1 else 0) + self.mask[0, 0] + 0 * self.constant[0]
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.9)
last = {"loss": 0.0}
elastic = muster.torch.Elastic(model, optimizer, extra={"schedule": schedule, "last": last}, OPTIONS)
loss, = elastic.buffers([numpy.zeros(1, "f4")])
say("opened")
for step in elastic.steps(STEPS):
    with step:
        picks = torch.randint(300, (5 * step.slot_count + 1,), generator=torch.Generator().manual_seed(step.step))
        for slot in step.slots:
            pick = picks[slot::step.slot_count]
            value = F.cross_entropy(model(X[pick], slot), Y[pick])
            (value / 2).backward(retain_graph=True)
            (value / 2).backward()
            loss[:] = value.item()
            if step.task in DIE and is_first and step.step == DIE[step.task]:
                os.kill(os.getpid(), 9)
            step.add(weight=len(pick))
        step.average()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        last["loss"] = float(loss[0])
    say("step", elastic.step, step.size, step.restored)
    if elastic.step == HOLD and is_first:
        wait_for("go")
assert torch.equal(model.unused, torch.ones(3)) and model.unused not in optimizer.state and model.rare[0] != 0
assert model.seen[1] == elastic.step == model.layers[1].num_batches_tracked and torch.equal(model.constant, torch.arange(1, 101) / 7)
say("end", elastic.step, digest(model, optimizer), schedule.get_last_lr()[0], last["loss"])
elastic.close()
"""


def program(options="slots=7", steps=40, die=(), hold=0, text=TRAIN):
    for name, value in {"OPTIONS": options, "STEPS": steps, "DIE": dict(die), "HOLD": hold}.items():
        text = text.replace(name, str(value))
    return text


known = []


@pytest.fixture
def undisturbed(job):
    """By one worker, once for all cases."""
    if not known:
        run = job(program(), 1)
        run.end()
        known.append(result_of(run))
    return known[0]


@pytest.mark.parametrize("n", [3, 4])
def test_the_model_is_the_same_with_other_workers_and_kills(job, undisturbed, n):
    """One dies inside of a step, two while the others wait for them in the next one."""
    run = job(program(die=[(2, 10)], hold=20), n)
    run.kill_in_turn((1, 0), 20, n)

    summary = run.end()

    assert summary["kills"] == 3 and summary["restarts"] == 3, run.text()
    assert result_of(run) == undisturbed
    assert "byte-identical" in run.text()


def test_the_launcher_s_slots_and_another_number_of_workers_from_a_checkpoint(job, undisturbed, tmp_path):
    for steps, n in ((20, 2), (40, 3)):
        run = job(program(f"slots=None, checkpoint={str(tmp_path / 'saved')!r}, every=10", steps), n, "--constant-batch", "7")
        run.end()

    assert next(words for _, _, words in run.said() if words[0] == "step")[1] == "21"
    assert result_of(run) == undisturbed


def test_the_program_of_the_page_has_the_same_bits(job):
    page = (conftest.SOURCE / "docs/python.md").read_text(encoding="utf-8")
    text = next(block for block in blocks(page, "python") if "muster.torch" in block and "slots=8" in block)

    lines = []
    for n in (1, 3):
        run = job(text, n, prelude="")
        run.end()
        lines += [line[line.index("weights "):] for line in run.text().splitlines() if "weights " in line and "identical" not in line]

    assert len(lines) == 2 and lines[0] == lines[1], lines


# A GAN: two rounds over the slots, the second of which begins with what the first one's update has made.
GAN = HEAD + """
first, second = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(6, 1)), nn.Sequential(nn.Linear(4, 8), nn.Tanh())
model = nn.ModuleList([first, second])
optimizers = [torch.optim.AdamW(each.parameters(), 0.01) for each in model]
elastic = muster.torch.Elastic(model, optimizers, OPTIONS)
say("opened")
for step in elastic.steps(STEPS):
    with step:
        for number, optimizer in enumerate(optimizers):
            for slot in step.slots:
                made = second(torch.randn(5, 4))
                if number == 0:
                    (first(X[5 * slot:5 * slot + 5]).mean() - first(made.detach()).mean()).backward()
                else:
                    (first(made) ** 2).mean().backward()
                if step.task in DIE and is_first and step.step == DIE[step.task] and number == 1:
                    os.kill(os.getpid(), 9)
                step.add()
            optimizer.step()
    say("step", elastic.step)
    if elastic.step == HOLD and is_first:
        wait_for("go")
say("end", elastic.step, digest(model, *optimizers))
elastic.close()
"""


def test_two_optimizers_go_through_the_slots_in_turn(job):
    """Of three workers one has no slot."""
    ends = []
    for n, die in ((1, ()), (3, [(1, 10)])):
        run = job(program("slots=2", 30, die, 12 if die else 0, GAN), n)
        if die:
            run.wait_said("opened", 1, 2)
            run.touch("go")
        assert run.end()["kills"] == len(die)
        ends.append(result_of(run))

    assert ends[0] == ends[1]


DATA = HEAD + """
model = nn.Sequential(nn.Linear(8, 4, dtype=TYPE), nn.BatchNorm1d(4, dtype=TYPE), nn.Linear(4, 1, dtype=TYPE))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
used = numpy.zeros(300, "i8")
elastic = muster.torch.Elastic(model, optimizer, data=muster.data.numbers(300, batch=32, seed=1, epochs=3), state={"used": used}, slots=4)
(hits,) = elastic.buffers([numpy.zeros(300)])
for step in elastic.steps(10**6):
    with step:
        for slot in step.slots:
            _, pick, _ = step.share()
            hits[:] = 0
            hits[pick] = 1 / max(len(pick), 1)
            if len(pick) > 1:
                (model(X[pick].to(TYPE)) ** 2).mean().backward()
            step.add()
        optimizer.step()
        used += hits > 0
say("end", elastic.step, used.min(), used.max(), digest(model, optimizer))
elastic.close()
"""


@pytest.mark.parametrize("kind", ["float64", "bfloat16"])
def test_shares_of_the_data_are_those_of_the_slots(job, kind):
    """Each record once in a pass. Types that NumPy lacks, too."""
    ends = []
    for n in (1, 3):
        run = job(DATA.replace("TYPE", f"torch.{kind}"), n)
        run.end()
        ends.append(result_of(run))

    assert ends[0][1:3] == ("3", "3") and ends[0] == ends[1]


def test_the_mean_is_that_of_all_examples_of_the_slots(alone):
    """As plain torch takes it of the whole batch; gradients of before the loop do not count."""
    done = alone("""
import torch, muster.torch
X = torch.arange(20.0, dtype=torch.float64).reshape(10, 2) / 10
model, plain = torch.nn.Linear(2, 1, dtype=torch.float64), torch.nn.Linear(2, 1, dtype=torch.float64)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
elastic = muster.torch.Elastic(model, optimizer, slots=3)
for step in elastic.steps(4):
    with step:
        plain.load_state_dict(model.state_dict())
        plain.zero_grad()
        (plain(X) ** 2).mean().backward()
        model(X).sum().backward()
        for slot in step.slots:
            step.weight = len(X[slot::3])
            (model(X[slot::3]) ** 2).mean().backward()
            step.add()
        optimizer.step()
        assert all(torch.allclose(ours.grad, theirs.grad, rtol=1e-13) for ours, theirs in zip(model.parameters(), plain.parameters()))
elastic.close()
print("equal")
""")

    assert done.stdout == "equal\n", done.stderr


def test_what_the_program_makes_of_buffers_behind_the_loop_stays(alone):
    """Before the mean, of buffers that no slot has changed. What slots change is that of the slots."""
    done = alone("""
import torch, muster.torch
class Model(torch.nn.Linear):
    def __init__(self):
        super().__init__(2, 1)
        self.register_buffer("count", torch.zeros(3, dtype=torch.int64))
        self.register_buffer("level", torch.zeros(3))
        self.register_buffer("calls", torch.zeros(3, dtype=torch.int32))
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
elastic = muster.torch.Elastic(model, optimizer, slots=2)
for step in elastic.steps(3):
    with step:
        for slot in step.slots:
            model(torch.ones(1, 2)).sum().backward()
            model.calls += 1
            step.add()
        model.count += 1
        model.level += 0.5
        optimizer.step()
print([each.unique().tolist() for each in model.buffers()])
elastic.close()
""")

    assert done.stdout == "[[3], [1.5], [3]]\n", (done.stdout, done.stderr)


def test_a_mask_of_the_lowest_number_stays_without_a_warning(alone):
    done = alone("""
import torch, muster.torch, warnings
warnings.simplefilter("error")
model = torch.nn.Linear(2, 1)
model.register_buffer("mask", torch.full((2, 2), torch.finfo(torch.float32).min).triu(1))
mask = model.mask.clone()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
elastic = muster.torch.Elastic(model, optimizer, slots=2)
for step in elastic.steps(2):
    with step:
        for slot in step.slots:
            model(torch.ones(1, 2)).sum().backward()
            step.add(weight=3)
        optimizer.step()
assert torch.equal(model.mask, mask)
elastic.close()
print("equal")
""")

    assert done.stdout == "equal\n", done.stderr


def test_a_scaler_sees_the_mean_and_skips_what_is_infinite(alone):
    done = alone("""
import torch, muster.torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
elastic = muster.torch.Elastic(model, optimizer, extra={"scaler": scaler}, slots=2)
for step in elastic.steps(3):
    with step:
        before = model.weight.detach().clone()
        for slot in step.slots:
            factor = torch.inf if step.step == 2 and slot == 1 else slot + 1.0
            scaler.scale(model(torch.ones(1, 2)).sum() * factor).backward()
            step.add()
        step.average()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        print((before - model.weight)[0, 0].item(), scaler.get_scale())
elastic.close()
""")

    moved = [[float(word) for word in line.split()] for line in done.stdout.splitlines()]
    assert [scale for _, scale in moved] == [1024, 512, 512], done.stderr
    assert [move for move, _ in moved] == pytest.approx([0.15, 0, 0.15], rel=1e-5)


USE = """
import torch, muster.torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
elastic = muster.torch.Elastic(model, optimizer, slots=2)
def loss():
    return model(torch.ones(1, 2)).sum()
"""
EACH = "for slot in step.slots: loss().backward(); step.add()"


@pytest.mark.parametrize("call, text", [
    ("loss().backward(); optimizer.step()", "RuntimeError the mean of a step with slots is that of `for slot in step.slots: …; step.add()`"),
    (f"{EACH}; optimizer.step()", "RuntimeError the mean of a step with slots must come behind `for slot in step.slots`"),
    (f"{EACH}\n            loss().backward(); optimizer.step()", "RuntimeError a gradient was made behind `for slot in step.slots`"),
    (f"{EACH}\n            step.average(); loss().backward(); optimizer.step()", "RuntimeError a gradient was made behind the mean over the slots"),
    (f"{EACH}\n            optimizer.step(); list(step.slots)", "RuntimeError step.slots must come before the last optimizer.step() of a step"),
    (f"{EACH}\n            step.average(weight=3)", "ValueError with slots average() takes no arrays and no weight"),
    (EACH, "RuntimeError step 1 has gone through its slots and not taken their mean"),
    ("pass", "RuntimeError step 1 has not gone through its slots"),
])
def test_a_step_that_uses_its_slots_wrongly_is_told(alone, call, text):
    check_told(alone, USE, call, text)


def test_a_mean_outside_of_a_step_is_told(alone):
    check_told(alone, USE, f"{EACH}\n            step.average(); optimizer.step()\n        step.average()",
               "RuntimeError step.average() must be inside of `with step`")


@pytest.mark.parametrize("average", ["pass", "step.average()"])
def test_a_gradient_behind_the_mean_that_one_of_two_optimizers_took_is_told(alone, average):
    done = alone("""
import torch, muster.torch
model = torch.nn.ModuleList([torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)])
first, second = [torch.optim.SGD(each.parameters(), 0.1) for each in model]
elastic = muster.torch.Elastic(model, [first, second], slots=2)
try:
    for step in elastic.steps(2):
        with step:
            for slot in step.slots:
                sum(each(torch.ones(1, 2)).sum() for each in model).backward()
                step.add()
            AVERAGE
            first.step()
            if step.step == 2:
                model[1](torch.ones(1, 2)).sum().backward()
            second.step()
        print("step", step.step)
except RuntimeError as error:
    print(error)
""".replace("AVERAGE", average))

    assert done.stdout.startswith("step 1\na gradient was made behind the mean over the slots"), (done.stdout, done.stderr)


@pytest.mark.parametrize("group, model", [
    ("muster.torch.backend.init_process_group(elastic=True)", "muster.torch.DistributedDataParallel(layer)"),
    ('dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)', "torch.nn.ModuleList([parallel.DistributedDataParallel(layer)])"),
])
def test_distributed_data_parallel_is_refused(alone, group, model):
    """In a group that is not elastic, too: members would sum differently often."""
    done = alone(f"""
import torch, torch.distributed as dist, torch.nn.parallel as parallel
import muster.torch
{group}
layer = torch.nn.Linear(2, 1)
model = {model}
try:
    muster.torch.Elastic(model, torch.optim.SGD(model.parameters(), 0.1), slots=2)
except ValueError as error:
    print(error)
""")

    assert done.stdout.startswith("Elastic(slots=…) cannot be used with DistributedDataParallel"), (done.stdout, done.stderr)
