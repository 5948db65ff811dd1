"""A job to look at: tests/programs/watched.c under `muster run --status`."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS

WATCHED = os.path.join(PROGRAMS, "watched")
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def get(url, **headers):
    """Status, content type, text."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=PATIENCE_S) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def until(test, what, find):
    """What `find` returns as soon as that is true."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = find()
        if found:
            return found
        time.sleep(0.05)
    return test.fail(f"never came: {what}")


class Watched:
    """A job of tests/programs/watched.c, which goes on until it is told to end."""

    LATE = 'while [ "$MUSTER_RESTART_COUNT" != 0 ] && [ ! -e "$1.again" ]; do sleep 0.02; done; exec "$0" "$1"'

    def __init__(self, test, *options, comes_back_late=False, **variables):
        folder = tempfile.mkdtemp()
        test.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.file = os.path.join(folder, "end")
        program = [*(["sh", "-c", self.LATE] if comes_back_late else []), WATCHED, self.file]
        self.child = subprocess.Popen([MUSTER, "run", "--status", "127.0.0.1:0", *options, "--", *program],
                                      text=True, env=dict(CLEAN, **variables), stderr=subprocess.PIPE,
                                      stdout=subprocess.DEVNULL)
        test.addCleanup(self.child.communicate)
        test.addCleanup(self.child.kill)
        line = self.child.stderr.readline()
        while line and not line.startswith("status "):
            line = self.child.stderr.readline()
        match = re.fullmatch(r"status (http://127\.0\.0\.1:\d+)\n", line)
        test.assertTrue(match, line)
        self.url = match[1] + "/"
        self.told = []
        threading.Thread(target=lambda: self.told.extend(self.child.stderr), daemon=True).start()

    def json(self):
        return json.loads(get(self.url + "status.json")[2])

    def metrics(self):
        return get(self.url + "metrics", Accept=OPEN)[2]

    def member(self, task):
        return next(m for m in self.json()["members"] if m["task"] == task)

    def stall(self, is_on):
        open(self.file + ".stall", "w").close() if is_on else os.unlink(self.file + ".stall")

    def end(self):
        open(self.file, "w").close()
        return self.child.wait(timeout=PATIENCE_S)


def registry(test):
    """The address of a registry of its own."""
    child = subprocess.Popen([MUSTER, "registry", "--listen", "127.0.0.1:0"], text=True, env=CLEAN,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    test.addCleanup(child.communicate)
    test.addCleanup(child.kill)
    return child.stdout.readline().split()[1]
