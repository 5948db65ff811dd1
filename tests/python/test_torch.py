"""muster.torch.Elastic: a model with BatchNorm and dropout is trained while workers die."""
# Needs: torch
import re

import conftest
import pytest

PRELOAD = "torch,torch._dynamo,muster.torch"
TRAIN = """
import torch, torch.nn as nn, torch.nn.functional as F
import muster.torch
torch.set_num_threads(1)
torch.manual_seed(int(os.environ["RANK"]))  # all begin with rank 0's weights
generator = torch.Generator().manual_seed(3)
X = torch.randn(300, 8, generator=generator); Y = (X[:, 0] * X[:, 1] > 0).long()
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
optimizer = OPTIMIZER
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.9)
elastic = muster.torch.Elastic(model, optimizer, extra={"schedule": schedule})
say("opened")
for step in elastic.steps(STEPS):
    with step:
        pick = torch.randint(300, (32,), generator=torch.Generator().manual_seed(step.step))[step.rank::step.size]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X[pick]), Y[pick])
        loss.backward()
        step.weight = len(pick)
        optimizer.step()
        schedule.step()
        now = step.step
    say("step", now, step.size, step.contributors, step.restored)
    if now == 20 and elastic.task in HOLD and is_first:
        wait_for("go")
model.eval()
accuracy = (model(X).argmax(1) == Y).float().mean().item()
say("end", elastic.step, accuracy, schedule.get_last_lr()[0], hash(tuple(torch.cat([p.detach().reshape(-1) for p in model.state_dict().values()]).tolist())))
elastic.close()
"""


def program(steps, optimizer, hold="()"):
    return TRAIN.replace("STEPS", str(steps)).replace("OPTIMIZER", optimizer).replace("HOLD", hold)


def ends(run):
    return {task: words[1:] for task, _, words in run.said() if words[0] == "end"}


@pytest.mark.parametrize("optimizer", ["torch.optim.AdamW(model.parameters(), 0.01)", "torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)"])
def test_kills_change_nothing_that_the_model_can_tell(job, optimizer):
    run = job(program(60, optimizer, "(0, 1, 2)"), 3)
    run.kill_in_turn((1, 0), 20, 3)

    summary = run.end()

    assert summary["kills"] == 2
    results = ends(run)
    assert len({tuple(words) for words in results.values()}) == 1 and 2 in results, results
    assert results[2][0] == "60" and float(results[2][1]) > 0.5 and "byte-identical" in run.text()


def test_the_program_of_the_page_trains(job):
    page = (conftest.SOURCE / "docs/python.md").read_text(encoding="utf-8")
    text = next(block for block in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S) if "muster.torch" in block)

    run = job(text, 2, prelude="", preload="")

    run.end()
    assert "accuracy 1.0" in run.text() or "accuracy 0.9" in run.text(), run.text()


def test_a_step_that_runs_again_counts_once_in_the_statistics(job):
    """A death ends the gather behind the forward pass, whose buffers are then what they were at begin."""
    run = job("""
import torch
import muster.torch
torch.set_num_threads(1)
X = torch.arange(12.0).reshape(6, 2)
model, alone = torch.nn.BatchNorm1d(2), torch.nn.BatchNorm1d(2)
model.register_buffer("seen", torch.zeros(1, dtype=torch.int32))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
elastic = muster.torch.Elastic(model, optimizer)
tries = 0
for step in elastic.steps(6):
    with step:
        tries += 1
        optimizer.zero_grad()
        model(X).sum().backward()
        model.seen += 1
        if step.task == 0 and step.step == 4:
            open("begun", "w").close()
        if step.task == 1 and step.step == 4 and is_first:
            wait_for("begun")    # else it dies between two steps of the other
            os.kill(os.getpid(), 9)
        step.strategy.all_gather(numpy.ones(1), numpy.zeros(step.size))
        optimizer.step()
for _ in range(6):
    alone(X)
say("end", tries, model.num_batches_tracked.item(), model.seen.item(), torch.allclose(model.running_mean, alone.running_mean))
elastic.close()
""", 2)
    run.end()

    said = {task: words[1:] for task, _, words in run.said() if words[0] == "end"}
    assert said[0] == ["7", "6", "6", "True"] and said.get(1, said[0])[1:] == said[0][1:], said


def test_parts_of_the_package_are_imported_when_they_are_asked_for(alone):
    done = alone("""
assert muster.torch.Elastic and muster.elastic.Elastic is muster.Elastic and muster.replicas.Replicas is muster.Replicas
assert muster.torch.init_process_group is muster.torch.backend.init_process_group
try:
    muster.torch.nothing
except AttributeError as error:
    print(error)
""")

    assert done.stdout == "module 'muster.torch' has no attribute 'nothing'\n", done.stderr


def test_a_second_update_in_a_step_is_refused(job):
    run = job("""
import torch
import muster.torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
elastic = muster.torch.Elastic(model, optimizer)
try:
    optimizer.step()
except RuntimeError as error:
    say("refused", error)
for step in elastic.steps(1):
    with step:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        try:
            optimizer.step()
        except RuntimeError as error:
            say("refused", error)
elastic.close()
""", 1)

    run.end()
    assert ["inside" in " ".join(words) or "second" in " ".join(words) for _, _, words in run.said()] == [True, True]


def test_the_mean_is_that_of_all_examples(job):
    """Three workers with unequal shares do what one does with the whole batch."""
    text = """
import torch
import muster.torch
torch.set_num_threads(1)
X = torch.arange(20.0).reshape(10, 2) / 10
model = torch.nn.Linear(2, 1, dtype=torch.float64); X = X.double()
with torch.no_grad():
    for p in model.parameters(): p.fill_(0.1)
optimizer = torch.optim.Adam(model.parameters(), 0.1)
elastic = muster.torch.Elastic(model, optimizer)
for step in elastic.steps(5):
    with step:
        share = X[step.rank::step.size]
        optimizer.zero_grad()
        ((model(share) - 3) ** 2).mean().backward()
        step.weight = len(share)
        optimizer.step()
say("end", *(each.item() for p in model.parameters() for each in p.flatten()))
elastic.close()
"""
    three, one = job(text, 3), job(text, 1)
    three.end(), one.end()

    assert [float(each) for each in ends(three)[0]] == pytest.approx([float(each) for each in ends(one)[0]], rel=1e-12)


def test_an_error_in_the_statistics_loses_no_records(alone):
    done = alone("""
import torch, muster.data, muster.torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
elastic = muster.torch.Elastic(model, optimizer, data=muster.data.numbers(12, batch=4, shuffle=False, epochs=1))
all_reduce, failing, used = elastic.strategy.all_reduce, ["mean", "max"], []
def fail_once(arrays, op="sum", **words):
    if op in failing:
        failing.remove(op)
        raise muster.Aborted("a death")
    all_reduce(arrays, op, **words)
elastic.strategy.all_reduce = fail_once
for step in elastic.steps(100):
    with step:
        numbers = step.share()[1]
        optimizer.zero_grad()
        model(torch.randn(len(numbers), 2)).sum().backward()
        optimizer.step()
        used += numbers
elastic.close()
assert not failing
print(*used)
""")

    assert done.stdout.split() == [str(number) for number in range(12)], done.stdout + done.stderr


# Each entry is an optimizer whose results must be those of plain torch bit by bit, or None: it is refused. The options need a state
# that does not begin with zeros.
OPTIMIZERS = {
    "Adadelta": [{}],
    "Adafactor": [{}],
    "Adagrad": [{"initial_accumulator_value": 0.5, "lr_decay": 0.1}],
    "Adam": [{}, {"amsgrad": True, "weight_decay": 0.1}, {"lr": "tensor"}],
    "AdamW": [{}],
    "Adamax": [{}],
    "ASGD": [{"t0": 2, "lambd": 0.1}],
    "LBFGS": None,
    "Muon": [{}],
    "NAdam": [{}],
    "RAdam": [{}],
    "RMSprop": [{"centered": True, "momentum": 0.5}],
    "Rprop": [{}],
    "SGD": [{"momentum": 0.9, "dampening": 0.3}, {"momentum": 0.9, "nesterov": True}, {}],
    "SparseAdam": None,
}

BITWISE = """
import torch
import muster.torch
torch.set_num_threads(1)
X = torch.randn(40, 3, generator=torch.Generator().manual_seed(3))
def trained(make, elastic):
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4, bias=False), torch.nn.Tanh(), torch.nn.Linear(4, 2, bias=False))
    optimizer = make(model.parameters())
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    def train(number):
        optimizer.zero_grad()
        ((model(X[number:number + 20]) - 1) ** 2).mean().backward()
        optimizer.step()
        schedule.step()
    if elastic:
        elastic = muster.torch.Elastic(model, optimizer, extra={"schedule": schedule})
        for step in elastic.steps(7):
            with step:
                train(step.step)
        elastic.close()
    else:
        for number in range(1, 8):
            train(number)
    state = optimizer.state_dict()
    return [*model.parameters(), *(value for each in state["state"].values() for _, value in sorted(each.items()))]
def same(a, b):
    return a.dtype == b.dtype and torch.equal(a, b) if torch.is_tensor(a) else a == b
"""


def test_every_optimizer_of_torch_stands_in_the_table(alone):
    done = alone("""
import torch
print(*(name for name in dir(torch.optim) if isinstance(getattr(torch.optim, name), type) and issubclass(getattr(torch.optim, name), torch.optim.Optimizer)))
""")

    assert set(done.stdout.split()) - {"Optimizer"} <= set(OPTIMIZERS), done.stderr


def test_optimizers_do_what_plain_torch_does(alone):
    """With one worker: the same bits in parameters and state, whatever is special in the first step."""
    rows = [(name, options) for name, rows in OPTIMIZERS.items() for options in rows or ()]
    done = alone(BITWISE + f"""
for name, options in {rows!r}:
    if hasattr(torch.optim, name):
        rate = {{"lr": torch.tensor}} if "lr" in options else {{}}
        make = lambda parameters: getattr(torch.optim, name)(parameters, **{{**options, **{{key: call(0.01) for key, call in rate.items()}}}})
        plain, ours = trained(make, False), trained(make, True)
        print(name, len(plain) == len(ours) and all(map(same, plain, ours)))
""")

    answers = [line.split() for line in done.stdout.splitlines()]
    assert done.returncode == 0 and [name for name, _ in answers if name != "Muon"] == [name for name, _ in rows if name != "Muon"], done.stderr
    assert all(is_same == "True" for _, is_same in answers), answers


def test_optimizers_whose_state_cannot_be_given_are_refused(alone):
    done = alone("""
import torch
import muster.torch
class Odd(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            for each in group["params"]:
                self.state[each]["history"] = [each.grad]
model = torch.nn.Linear(2, 1)
for make in (torch.optim.LBFGS, torch.optim.SparseAdam, Odd):
    before = [each.detach().clone() for each in model.parameters()]
    try:
        muster.torch.Elastic(model, make(model.parameters()))
    except NotImplementedError as error:
        print(make.__name__, error)
    assert all(map(torch.equal, model.parameters(), before)), make
""")

    assert done.returncode == 0, done.stderr
    for line, name in zip(done.stdout.splitlines(), ("LBFGS", "SparseAdam", "Odd"), strict=True):
        assert line.startswith(f"{name} {name} cannot be used in an Elastic") and "such as AdamW" in line, line


GAN = """
import torch, torch.nn as nn
import muster.torch
torch.set_num_threads(1)
torch.manual_seed(int(os.environ.get("RANK", 0)))
generator, discriminator = nn.Linear(2, 2, dtype=torch.float64), nn.Linear(2, 1, dtype=torch.float64)
optimizers = [torch.optim.Adam(generator.parameters(), 0.02), torch.optim.ASGD(discriminator.parameters(), 0.05)]
elastic = muster.torch.Elastic(nn.ModuleList([generator, discriminator]), optimizers)
real = torch.randn(64, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 2
def train(step):
    noise = torch.randn(64, 2, generator=torch.Generator().manual_seed(step.step), dtype=torch.float64)
    mine = slice(step.rank, None, step.size)
    step.weight = len(noise[mine])
    for each in optimizers: each.zero_grad()
    (discriminator(generator(noise[mine]).detach()).mean() - discriminator(real[mine]).mean()).backward()
    optimizers[1].step()
    optimizers[0].zero_grad()
    (-discriminator(generator(noise[mine])).mean()).backward()
    optimizers[0].step()
def end():
    say("end", *(each.item() for each in torch.cat([p.detach().flatten() for p in elastic.model.parameters()])))
"""


def test_two_optimizers_train_while_workers_die(job):
    run = job(GAN + """
for step in elastic.steps(60):
    with step:
        train(step)
        now = step.step
    say("step", now)
    if now == 20 and elastic.task in (0, 1, 2) and is_first:
        wait_for("go")
end()
elastic.close()
""", 3)
    run.wait_until(lambda: len(run.pids()) == 3 and run.step() >= 20, "step 20 of all")
    run.kill(1)
    run.touch("go")

    summary = run.end()

    results = ends(run)
    assert len({tuple(words) for words in results.values()}) == 1 and len(results) == 3 and summary["identical"], results


def test_an_update_is_undone_when_the_step_runs_again(alone, job):
    """Operations of the second optimizer come behind the update of the first one. The others do the same without the errors."""
    others = job(GAN + "for step in elastic.steps(5):\n    with step: train(step)\nend()\nelastic.close()\n", 2)
    done = alone("def say(*words): print(*words)\n" + GAN + """
plain, failing = elastic.strategy.all_reduce_weighted, [4, 8]
calls = 0
def fail_twice(arrays, weight):
    global calls
    calls += 1
    if calls in failing:
        raise muster.Aborted("a death")
    plain(arrays, weight)
elastic.strategy.all_reduce_weighted = fail_twice
for step in elastic.steps(5):
    with step:
        train(step)
end()
elastic.close()
""")
    others.end()

    assert done.returncode == 0, done.stderr
    assert [float(each) for each in done.stdout.split()[1:]] == pytest.approx([float(each) for each in ends(others)[0]], rel=1e-9)


def test_what_optimizers_must_be_is_told(alone):
    done = alone("""
import torch
import muster.torch, muster.data
a, b = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
sgd = lambda *modules: torch.optim.SGD([each for module in modules for each in module.parameters()], 0.1)
for call in (lambda: muster.torch.Elastic(a, {"sgd": sgd(a)}),
             lambda: muster.torch.Elastic([a, b], sgd(a)),
             lambda: muster.torch.Elastic(a, []),
             lambda: muster.torch.Elastic(a, [sgd(a), sgd(b)]),
             lambda: muster.torch.Elastic(torch.nn.ModuleList([a, b]), [sgd(a), sgd(a, b)]),
             lambda: muster.torch.Elastic(torch.nn.ModuleList([a, b]), [sgd(a), sgd(b)], data=muster.data.numbers(4))):
    try:
        call()
    except (TypeError, ValueError) as error:
        print(type(error).__name__, error)
optimizer = sgd(a)
with muster.torch.Elastic(a, optimizer):
    try:
        optimizer.step(lambda: None)
    except TypeError as error:
        print(type(error).__name__, error)
""")

    starts = ["TypeError optimizer must be a torch.optim.Optimizer, or a list of them, got dict",
              "TypeError model must be a torch.nn.Module, got list: put several into",
              "ValueError optimizer must be a torch.optim.Optimizer, or a list of them, got an empty list",
              "ValueError parameter 0 of optimizer 1 (SGD), of shape (1, 2), is not one of the model: give",
              "ValueError parameter 0.weight must have one optimizer, got two (0 and 1 of the list): leave",
              "ValueError Elastic(data=…) must have one optimizer, got 2: ",
              "TypeError optimizer.step() must be without a closure"]
    for line, start in zip(done.stdout.splitlines(), starts, strict=True):
        assert line.startswith(start), line


def test_a_rehearsal_comes_before_the_first_begin_and_changes_nothing(alone):
    """What is slow the first time is done alone: no module is imported in the first step."""
    done = alone("""
import torch, torch.nn as nn
import muster.torch
torch.set_num_threads(1)
X = torch.randn(20, 3, generator=torch.Generator().manual_seed(3))
def trained(is_rehearsed):
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    elastic = muster.torch.Elastic(model, optimizer)
    steps = []
    def backward():
        steps.append(elastic.strategy.step)
        model(X).sum().backward()
    if is_rehearsed:
        elastic.rehearse(backward)
        assert steps == [0, 0]
    before = set(sys.modules)
    for step in elastic.steps(3):
        with step:
            optimizer.zero_grad()
            backward()
            optimizer.step()
        print(*(set(sys.modules) - before))
    elastic.close()
    return [each.clone() for each in model.state_dict().values()]
print(all(map(torch.equal, trained(True), trained(False))))
""")

    assert done.stdout.split() == ["True"], done.stdout + done.stderr


def test_tensors_and_generators_in_extra_are_alike_on_all_members(job):
    run = job("""
import torch, muster.torch
rank = int(os.environ["RANK"])
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
ema = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
order, dice = torch.Generator().manual_seed(rank), numpy.random.RandomState(rank)
best = torch.full((2, 3), 1.0 + rank, dtype=torch.bfloat16).t()
notes = {"best": best, "none": torch.zeros(0, 2), "flag": torch.tensor(rank == 0), "order": torch.Generator().manual_seed(rank)}
elastic = muster.torch.Elastic(model, optimizer, extra={"ema": ema, "order": order, "dice": dice, "notes": notes})
for step in elastic.steps(3):
    with step:
        model(torch.randn(4, 2, generator=order)).sum().backward()
        optimizer.step()
        ema.update_parameters(model)
say("end", [torch.rand(1, generator=each).item() for each in (order, notes["order"])], dice.rand(), best.tolist(), notes["flag"].item(),
    tuple(notes["none"].shape), ema.module[0].bias.tolist())
elastic.close()
""", 2)

    run.end()

    results = ends(run)
    assert len(results) == 2 and results[0] == results[1], results
    assert "[[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]] True (0, 2)" in " ".join(results[1]) and "byte-identical" in run.text()
