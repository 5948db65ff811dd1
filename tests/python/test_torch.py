"""muster.torch.Elastic: a model with BatchNorm and dropout is trained while workers die."""
# Needs: torch
import re

import conftest
import pytest

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
    for task in (1, 0):
        run.wait_until(lambda: len(run.pids()) == 3 and run.step() >= 20, "step 20 of all")
        run.kill(task)
        run.wait_until(lambda t=task: len({pid for each, pid, words in run.said(t) if words[0] == "opened"}) == 2, "it is back")
    run.touch("go")

    summary = run.end()

    assert summary["kills"] == 2
    results = ends(run)
    assert len({tuple(words) for words in results.values()}) == 1 and 2 in results, results
    assert results[2][0] == "60" and float(results[2][1]) > 0.5 and "byte-identical" in run.text()


def test_the_program_of_the_page_trains(job):
    page = (conftest.SOURCE / "docs/python.md").read_text(encoding="utf-8")
    text = next(block for block in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S) if "muster.torch" in block)

    run = job(text, 2, prelude="")

    run.end()
    assert "accuracy 1.0" in run.text() or "accuracy 0.9" in run.text(), run.text()


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
