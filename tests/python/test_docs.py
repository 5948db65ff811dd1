"""The programs of docs/python.md and README.md, word for word."""
import os
import re
import subprocess
import sys

import conftest
import pytest
from test_params import server  # noqa: F401 (a fixture)

PAGE = (conftest.SOURCE / "docs/python.md").read_text(encoding="utf-8")
COUNTER = (conftest.SOURCE / "examples/python/counter.py").read_text(encoding="utf-8")


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def test_the_counter_is_the_one_of_the_examples():
    assert blocks(PAGE, "python")[0] == COUNTER
    assert COUNTER.endswith(blocks((conftest.SOURCE / "README.md").read_text(encoding="utf-8"), "python")[0])


def test_the_weights_are_those_of_the_examples():
    """test_publication.py runs them."""
    assert blocks(PAGE, "python")[8] == (conftest.SOURCE / "examples/python/weights.py").read_text(encoding="utf-8")


def test_the_loop_of_the_page_trains(job):
    run = job(blocks(PAGE, "python")[1], 2, prelude="")

    run.end()
    assert "weights [1. 2. 3. 4.]" in run.text()


def test_the_rows_of_the_page_are_counted(server, tmp_path):
    program = tmp_path / "rows.py"
    program.write_text(blocks(PAGE, "python")[6], encoding="utf-8")

    outputs = [subprocess.run([sys.executable, program, server.address], capture_output=True, text=True, timeout=conftest.PATIENCE_S, check=False)
               for _ in range(2)]

    assert [(done.stdout, done.stderr) for done in outputs] == [("totals [100. 100. 100. 100.]\n", ""), ("totals [200. 200. 200. 200.]\n", "")]


def test_the_pulls_of_the_page_go_on_beside_the_program(server, tmp_path):
    program = tmp_path / "ahead.py"
    program.write_text(blocks(PAGE, "python")[7], encoding="utf-8")

    done = subprocess.run([sys.executable, program, server.address], capture_output=True, text=True, timeout=conftest.PATIENCE_S, check=False)

    assert (done.stdout, done.stderr) == ("row 0 [0.5 0.5]\n", "")


def test_the_request_of_the_page_ends(job):
    job(blocks(PAGE, "python")[9], 2, prelude="").end()


def test_the_grid_of_the_page_averages_by_columns(job):
    run = job(blocks(PAGE, "python")[10], 4, prelude="")

    run.end()
    assert sorted(line.split(maxsplit=1)[-1] for line in run.text().splitlines() if "row " in line) == [
        f"row {rank} of 2 [1. 1. 1. 2. 2. 2.]" for rank in (0, 0, 1, 1)]


def test_the_replicas_of_the_page_train(job):
    run = job(blocks(PAGE, "python")[11], 2, prelude="")

    run.end()
    assert "weights [1. 2. 3. 4.]" in run.text()


@pytest.mark.parametrize("block", [2, 12], ids=["Elastic", "Strategy"])
def test_the_slots_of_the_page_have_the_same_bits(job, block):
    lines = []
    for n in (1, 3):
        run = job(blocks(PAGE, "python")[block], n, prelude="")
        run.end()
        lines += [line[line.index("weights"):] for line in run.text().splitlines() if "weights [" in line]

    assert len(lines) == 2 and lines[0] == lines[1] and lines[0].startswith("weights [1. 2. 3. 4.]"), lines


@pytest.mark.parametrize("stranger", ["muster_package", "muster_free_threaded"])
def test_the_commands_of_the_page_install_and_run(stranger):
    """What tests/tools/install-strangers has done by the page's first lines, and the last line."""
    sys.path.insert(0, str(conftest.SOURCE / "tests/lib"))
    import needs
    make, install, start = blocks(PAGE, "sh")[0].splitlines()
    python = needs.stranger_path(f"{stranger}/bin/python")
    if python is None:
        print("skipped: " + needs.stranger_is_missing(stranger))
        pytest.skip(needs.stranger_is_missing(stranger))

    assert make == "python3 -m venv venv" and install == "venv/bin/pip install ./python numpy"
    clean = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "LANG", "TMPDIR")}
    done = subprocess.run(start.replace("venv/bin/", str(python)[:-len("python")]), shell=True, cwd=conftest.SOURCE, env=clean, text=True,
                          capture_output=True, timeout=conftest.PATIENCE_S, check=False)
    assert done.returncode == 0 and "total 4000" in done.stdout, done
