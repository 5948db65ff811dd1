#!/usr/bin/env python3
"""The official interop cases between muster and others, in both directions: a table, a row for each case.

`ok`; `FAILED`, with what was printed below the table; `-`: the other side has no part in the case, as the list at its end says.
A case that the other side is said to lack and that passes all the same is shown as `ok!`.
"""
import pathlib
import subprocess
import sys
import tempfile
from concurrent import futures

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import interop_roles as roles
import interop_strangers as strangers


def their_client(stranger, case, port):
    try:
        done = subprocess.run(stranger.client(port, case), capture_output=True, text=True, errors="replace",
                              timeout=roles.PATIENCE_S)
    except subprocess.TimeoutExpired:
        return False, "no end after %d s" % roles.PATIENCE_S
    return done.returncode == 0, done.stdout + done.stderr


def as_server(stranger):
    """Their client against our server."""
    server = roles.Server([roles.program("interop_server"), "--port=0"])
    column = {case: their_client(stranger, case, server.port) for case in roles.CASES if case not in stranger.client_lacks}
    code = server.stop()
    column["the server ends in order"] = code == 0, f"exit code {code}"
    return f"{stranger.name}->muster", column, stranger.client_lacks


def as_client(stranger):
    """Our client against their server."""
    column = {}
    with tempfile.TemporaryFile() as log:
        server = strangers.Running(stranger, log)
        try:
            for case in roles.CASES:
                column[case] = roles.run_client(server.port, case, *(roles.SOAK if "soak" in case else []))
        finally:
            server.stop()
    return f"muster->{stranger.name}", column, stranger.server_lacks


def cell(column, lacks, row):
    if row not in column:
        return "-"
    if row in lacks:
        return "ok!" if column[row][0] else "-"
    return "ok" if column[row][0] else "FAILED"


def show(columns):
    rows = roles.CASES + ["the server ends in order"]
    print("%-28s" % "" + " ".join(name for name, _, _ in columns))
    for row in rows:
        print("%-28s" % row + " ".join(cell(column, lacks, row).ljust(len(name)) for name, column, lacks in columns))
    failed = 0
    for name, column, lacks in columns:
        for row in rows:
            if cell(column, lacks, row) == "FAILED":
                failed += 1
                print(f"FAILED {name} {row}:\n{column[row][1][-3000:]}")
    for name, _, lacks in columns:
        for reason in dict.fromkeys(lacks.values()):
            print(f"{name} -: {reason}: {' '.join(case for case in lacks if lacks[case] == reason)}")
    return failed


def main():
    roles.program("interop_server"), roles.program("interop_client")
    jobs, missing = [], []
    with futures.ThreadPoolExecutor(2) as pool:
        for kind in strangers.ALL:
            try:
                stranger = kind()
            except strangers.Missing as reason:
                missing.append(f"{kind.name}: {reason}")
                continue
            jobs.append(pool.submit(as_server, stranger))
            if stranger.server is not None:
                jobs.append(pool.submit(as_client, stranger))
    columns = [job.result() for job in jobs]
    failed = show(columns) if columns else 0
    print("\n".join("not here: " + text for text in missing))
    if not columns:
        roles.skip("; ".join(missing))
    return failed > 0


sys.exit(main())
