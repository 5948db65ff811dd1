"""tests/bench/random_kills: jobs whose workers die at random moments keep every step and equal states; and it says so when they do not."""
import json
import subprocess
import sys

import pytest
from conftest import MUSTER, PATIENCE_S, SOURCE

BENCH = SOURCE / "tests" / "bench"
sys.path.insert(0, str(BENCH))
import killed_workers

WHOLE = {0: [(0, 0, 1, 0), (1, 2, 5, 11), (2, 2, 9, 12), (3, 2, 12, 13)], 1: [(0, 0, 2, 0), (1, 2, 6, 11), (2, 2, 8, 12), (3, 2, 13, 13)]}


def test_killed_workers_come_back_and_lose_nothing():
    command = [BENCH / "random_kills", "--json", "--check", "--program", "numpy", "-n", "3", "--kills", "4", "--build", MUSTER.parents[1],
               "--python", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)

    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and [row["wire"] for row in rows] == ["shm", "tcp"], (done.stdout, done.stderr)
    assert [(row["rejoins"], row["met"]) for row in rows] == [(4, True)] * 2 and min(row["steps"] for row in rows) > 4 * 3


def judged(folder, lines):
    """What judge says about the steps of a job of two workers that have written these lines."""
    job = killed_workers.Job.__new__(killed_workers.Job)
    job.n, job.folder, job.processes = 2, folder, {}
    for rank, each in lines.items():
        (folder / f"out.{rank}.1{rank}").write_text("".join(f"{' '.join(map(str, line))}\n" for line in each), encoding="ascii")
    (folder / "log").write_text("", encoding="ascii")
    job.lives()
    return {key: value for key, value in killed_workers.judge(job).items() if key in ("missing", "differing", "at_the_end")}


@pytest.mark.parametrize("rank, index, line, told", [
    (0, 1, (1, 2, 5, 11), {}),
    (0, 2, (2, 2, 9, 77), {"differing": 1}),
    (0, 2, None, {"missing": 1}),
    (1, 3, None, {"at_the_end": 1}),
    (0, 3, (4, 2, 12, 14), {"missing": 1, "at_the_end": 1}),
])
def test_it_tells_what_is_missing_and_what_differs(tmp_path, rank, index, line, told):
    lines = {key: list(value) for key, value in WHOLE.items()}
    lines[rank][index : index + 1] = [line] if line else []

    assert judged(tmp_path, lines) == {"missing": 0, "differing": 0, "at_the_end": 2, **told}


def test_a_step_that_nobody_has_is_missing(tmp_path):
    lines = {rank: [line for line in value if line[0] != 2] for rank, value in WHOLE.items()}
    lines[1] = lines[1][:1] + lines[1][2:]

    assert judged(tmp_path, lines)["missing"] == 2  # once in the job, once in the process that has the steps around it
