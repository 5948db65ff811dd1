"""The programs of docs/from-torchrun.md and docs/from-torchft.md, word for word."""
# Needs: torch
import conftest
import pytest
from test_docs import blocks

PRELOAD = "torch,torch._dynamo,numpy"
TORCHRUN = (conftest.SOURCE / "docs/from-torchrun.md").read_text(encoding="utf-8")
TORCHFT = (conftest.SOURCE / "docs/from-torchft.md").read_text(encoding="utf-8")
BEFORE, INIT, ELASTIC = blocks(TORCHRUN, "python")
SURVIVING = BEFORE.replace('dist.init_process_group("gloo")\n', INIT).replace("= DistributedDataParallel", "= muster.torch.DistributedDataParallel")


@pytest.mark.parametrize("program, options", [(BEFORE, ["--restart", "all"]), (SURVIVING, ["--max-restarts", "0"]), (ELASTIC, [])])
def test_each_step_from_torchrun_trains(job, program, options):
    run = job(program.replace("range(1, 101)", "range(1, 41)").replace("steps(100)", "steps(40)"), 2, *options, prelude="")

    run.end()
    assert "accuracy 0.9" in run.text() or "accuracy 1.0" in run.text()


def test_the_program_from_torchft_trains(job):
    (program,) = blocks(TORCHFT, "python")
    run = job(program, 2, prelude="")

    run.end()
    assert "accuracy 0.9" in run.text() or "accuracy 1.0" in run.text()
