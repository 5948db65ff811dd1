"""muster.torch.Elastic: what becomes of gradients between backward() and the update, as in a program with DistributedDataParallel."""
# Needs: torch
import numpy

PRELOAD = "torch,torch._dynamo,muster.torch"
# Two halves of a batch that two workers have, or a process alone: the mean over all examples is the same to the bit, as is a half.
MODEL = """
import torch
import muster.torch
torch.set_num_threads(1)
torch.manual_seed(0)
X = torch.randn(8, 4)
model = torch.nn.ModuleDict({name: torch.nn.Linear(4, 2) for name in ("used", "odd", "never")})
def loss_of(rows, has_odd):
    y = model["used"](rows)
    return ((y + model["odd"](rows) if has_odd else y) ** 2).mean()
def bits():
    return " ".join(p.detach().numpy().tobytes().hex() for p in model.parameters())
"""


def ends(run):
    return {task: " ".join(words[1:]) for task, _, words in run.said() if words[0] == "end"}


def test_what_has_no_gradient_on_any_member_is_left_alone(alone, job):
    """Momentum and weight decay go on where one member has a gradient, and stand still where none has."""
    optimizers = """
optimizers = [torch.optim.AdamW([*model["used"].parameters(), *model["never"].parameters()], 0.1, weight_decay=0.5),
              torch.optim.SGD(model["odd"].parameters(), 0.1, momentum=0.9, weight_decay=0.5)]
"""
    plain = alone(MODEL + optimizers + """
for step in range(1, 7):
    for each in optimizers: each.zero_grad()
    (loss_of(X[:4], step in (2, 3)) / 2 + loss_of(X[4:], False) / 2).backward()
    for each in optimizers: each.step()
print(bits())
""")
    run = job(MODEL + optimizers + """
elastic = muster.torch.Elastic(model, optimizers)
for step in elastic.steps(6):
    with step:
        for each in optimizers: each.zero_grad()
        loss_of(X[4 * step.rank:][:4], step.step in (2, 3) and step.rank == 0).backward()
        for each in optimizers: each.step()
say("end", bits())
elastic.close()
""", 2)
    run.end()

    assert plain.returncode == 0 and ends(run) == {0: plain.stdout.strip(), 1: plain.stdout.strip()}, plain.stderr


def test_gradients_are_clipped_behind_their_mean(alone, job):
    """The update does not take the mean again, unless another backward() has come."""
    optimizer = """
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
def clip():
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
"""
    plain = alone(MODEL + optimizer + """
for step in range(1, 5):
    optimizer.zero_grad()
    (loss_of(X[:4], True) / 2 + loss_of(X[4:], True) / 2).backward()
    clip()
    if step == 3:
        (loss_of(X[:4], True) / 2 + loss_of(X[4:], True) / 2).backward()
    optimizer.step()
print(bits())
""")
    run = job(MODEL + optimizer + """
elastic = muster.torch.Elastic(model, optimizer)
for step in elastic.steps(4):
    with step:
        optimizer.zero_grad()
        loss_of(X[4 * step.rank:][:4], True).backward()
        step.average()
        clip()
        if step.step == 3:
            loss_of(X[4 * step.rank:][:4], True).backward()
        optimizer.step()
say("end", bits())
elastic.close()
""", 2)
    run.end()
    theirs, ours = (values(text) for text in (plain.stdout, ends(run)[0]))

    assert plain.returncode == 0 and ends(run)[0] == ends(run)[1], plain.stderr
    assert max(abs(a - b) for a, b in zip(theirs, ours, strict=True)) < 1e-6, (theirs, ours)


def values(text):
    return numpy.frombuffer(bytes.fromhex(text.replace(" ", "").strip()), numpy.float32).tolist()


def test_all_members_skip_an_update_that_one_would(job):
    """A GradScaler looks for what is not finite behind the mean, in which each member sees it."""
    run = job(MODEL + """
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=100)
elastic = muster.torch.Elastic(model, optimizer, extra={"scaler": scaler})
for step in elastic.steps(4):
    with step:
        optimizer.zero_grad()
        loss = loss_of(X[4 * step.rank:][:4], True)
        scaler.scale(loss * float("inf") if step.step == 2 and step.rank == 1 else loss).backward()
        step.average()
        scaler.step(optimizer)
        scaler.update()
say("end", scaler.get_scale(), bits())
elastic.close()
""", 2)
    run.end()

    assert ends(run)[0] == ends(run)[1] and ends(run)[0].startswith("2.0 "), ends(run)


def test_a_gradient_that_no_mean_would_have_is_refused(alone):
    done = alone(MODEL + """
model["odd"].requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
elastic = muster.torch.Elastic(model, optimizer)
for call in (elastic.average, optimizer.step):
    try:
        call()
    except RuntimeError as error:
        print(error)
for step in elastic.steps(2):
    with step:
        model["odd"].requires_grad_(step.step == 2)
        loss_of(X, True).backward()
        optimizer.step()
""")

    assert done.returncode == 1 and done.stdout.count("inside of `with step`") == 2, done.stderr
    assert "RuntimeError: parameter odd.weight has a gradient, and had requires_grad=False" in done.stderr, done.stderr


def test_a_rehearsal_leaves_no_gradient(alone):
    """Else an update of the first step would begin with gradients of zero where plain PyTorch has none."""
    done = alone(MODEL + """
optimizer = torch.optim.AdamW(model.parameters(), 0.1, weight_decay=0.5)
elastic = muster.torch.Elastic(model, optimizer)
elastic.rehearse(lambda: loss_of(X, True).backward())
before = bits()
print({name for name, each in model.named_parameters() if each.grad is not None})
for step in elastic.steps(1):
    with step:
        optimizer.step()
print(before == bits())
elastic.close()
""")

    assert done.stdout.split("\n")[:2] == ["set()", "True"], done.stderr


def test_what_cannot_be_trained_so_is_named(alone):
    done = alone(MODEL + """
def refused(call):
    try:
        call()
    except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        print(error)
def elastic_of(model):
    return muster.torch.Elastic(model, torch.optim.SGD(model.parameters(), 0.1))
def step_of(model, loss):
    elastic = elastic_of(model)
    with elastic:
        loss().backward()
        elastic.optimizer.step()
phases = torch.nn.ParameterList([torch.ones(2, dtype=torch.complex64)])
rows = torch.nn.Embedding(4, 2, sparse=True)
refused(lambda: elastic_of(phases))
refused(lambda: elastic_of(torch.nn.Conv2d(2, 2, 3).to(memory_format=torch.channels_last)))
refused(lambda: step_of(rows, lambda: rows(torch.tensor([1])).sum()))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
elastic = muster.torch.Elastic(model, optimizer)
refused(lambda: muster.torch.Elastic(model, optimizer))
for weight in (2.5, -1):
    refused(lambda: setattr(elastic, "weight", weight))
elastic.close()
muster.torch.Elastic(model, optimizer).close()
print("again")
""")

    assert [line.split(",")[0] for line in done.stdout.splitlines()] == [
        "parameter 0 must be of float32", "parameter weight must be contiguous (not channels_last) and on the CPU",
        "parameter weight has a gradient of layout torch.sparse_coo",
        "optimizer 0 (SGD) belongs to an Elastic that is not closed: call its close() first",
        "a weight must be a whole number of examples", "a weight must be a whole number of examples", "again"], (done.stdout, done.stderr)


def test_what_is_loaded_behind_the_constructor_counts(alone, job):
    """A program resumes from a file of its own: momenta, the learning rate, the scheduler and the weights are those of the file on all
    members, also where rank 0 alone has read it."""
    build = """
optimizer = torch.optim.AdamW(model.parameters(), 0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
def load():
    saved = torch.load("saved.pt")
    model.load_state_dict(saved["model"]); optimizer.load_state_dict(saved["optimizer"]); schedule.load_state_dict(saved["schedule"])
"""
    plain = alone(MODEL + build + """
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        (loss_of(X[:4], True) / 2 + loss_of(X[4:], True) / 2).backward()
        optimizer.step(); schedule.step()
train(3)
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}, "saved.pt")
train(4)
print(os.getcwd(), optimizer.param_groups[0]["lr"], bits())
""")
    folder, result = plain.stdout.strip().split(" ", 1)
    run = job(MODEL + build.replace('"saved.pt"', f'"{folder}/saved.pt"') + """
elastic = muster.torch.Elastic(model, optimizer, extra={"schedule": schedule})
if os.environ["RANK"] == "0":
    load()
for step in elastic.steps(4):
    with step:
        optimizer.zero_grad()
        loss_of(X[4 * step.rank:][:4], True).backward()
        optimizer.step(); schedule.step()
say("end", optimizer.param_groups[0]["lr"], bits())
elastic.close()
""", 2)
    run.end()
    ours = ends(run)

    assert plain.returncode == 0 and ours[0] == ours[1] and ours[0].split()[0] == result.split()[0], (result, ours)
    difference = max(abs(a - b) for a, b in zip(values(result.split(" ", 1)[1]), values(ours[0].split(" ", 1)[1]), strict=True))
    assert difference < 1e-6, difference


def test_parameters_that_are_added_later_are_refused(alone):
    done = alone(MODEL + """
optimizer = torch.optim.SGD(model["used"].parameters(), 0.1, momentum=0.9)
elastic = muster.torch.Elastic(model, optimizer)
optimizer.add_param_group({"params": model["odd"].parameters()})
with elastic:
    loss_of(X, True).backward()
    optimizer.step()
""")

    assert "RuntimeError: optimizer 0 (SGD) must keep its 2 parameters, got 4: add parameter groups before the Elastic is made" in done.stderr, done.stderr
