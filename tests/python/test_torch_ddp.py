"""muster.torch.DistributedDataParallel: what the gradients are divided by, while all are there and behind a death."""
# Needs: torch
import pytest
from test_torch_backend import BEGIN, PRELOAD  # noqa: F401 (conftest takes it)

PROGRAM = BEGIN + """
import muster.torch
torch.manual_seed(0)
model = nn.Linear(1, 1, bias=False).to(DTYPE)
wrapped = WRAPPER(model)
for i in range(6):
    wrapped.zero_grad()
    loss = wrapped(torch.full((1, 1), rank + 1).to(DTYPE)).sum()  # its gradient is rank + 1
    if i == 3 and rank == 2:
        os.kill(os.getpid(), 9)
    loss.backward()
    say("gradient", model.weight.grad.item())
"""


def gradients(run):
    return {task: [float(words[1]) for each, _, words in run.said(task) if words[0] == "gradient"] for task in (0, 1)}


@pytest.mark.parametrize("dtype", ["torch.float32", "torch.bfloat16"])
def test_gradients_are_divided_by_those_that_gave_theirs(job, dtype):
    run = job(PROGRAM.replace("WRAPPER", "muster.torch.DistributedDataParallel").replace("DTYPE", dtype), 3, "--max-restarts", "0")

    run.child.wait(120)

    assert gradients(run) == {task: [2, 2, 2, 1.5, 1.5, 1.5] for task in (0, 1)}, run.text()


def test_those_of_torch_become_smaller_behind_a_death(job):
    """What the other one is for."""
    run = job(PROGRAM.replace("WRAPPER", "nn.parallel.DistributedDataParallel").replace("DTYPE", "torch.float32"), 3, "--max-restarts", "0")

    run.child.wait(120)

    assert gradients(run) == {task: [2, 2, 2, 1, 1, 1] for task in (0, 1)}, run.text()


def test_an_error_comes_out_of_backward(job):
    run = job(BEGIN + """
import muster.torch
wrapped = muster.torch.DistributedDataParallel(nn.Linear(4, 4))
if rank == 0:
    backend._strategy.abandon("enough")
try:
    wrapped(torch.ones(1, 4)).sum().backward()
    say("went on")
except muster.Error as error:
    say("told", error)
""", 2, "--max-restarts", "0")

    run.child.wait(120)

    assert [words for _, _, words in run.said(1)] == [["went", "on"]], run.text()
    assert "enough" in run.said(0)[0][2], run.text()
