"""What a test needs of the machine. Asked for before the test starts anything: what is missing skips the test, with the reason."""
import os
import pathlib
import shutil
import subprocess
import sys

SKIPPED = 77
BUILD = pathlib.Path(os.environ.get("MUSTER_BINARY_DIR", "build-asan"))


def skip(reason):
    print("skipped: " + reason, flush=True)
    sys.exit(SKIPPED)


def program(name):
    """The path of one of our own programs."""
    path = BUILD / "bin" / name
    return str(path) if path.exists() else skip(f"{path} is not built")


def tool(name, package):
    """The path of a program that a package of Debian brings."""
    return shutil.which(name) or skip(f"{name} is not installed (Debian: {package})")


def stranger_path(name):
    """What tests/tools/install-strangers has installed, or None."""
    home = pathlib.Path(os.environ.get("MUSTER_STRANGERS", pathlib.Path.home() / ".cache" / "muster-strangers"))
    path = home / "bin" / name
    return str(path) if path.exists() else None


def stranger_is_missing(name):
    """The text by which tests/tools/tests-without-strangers finds the tests to run again."""
    return f"{name} is not installed (tests/tools/install-strangers {name})"


def stranger(name):
    return stranger_path(name) or skip(stranger_is_missing(name))


FINDS_ALL = "import importlib.util as u, sys; sys.exit(None in map(u.find_spec, sys.argv[1:]))"


def find_python(*modules):
    """An interpreter that has them, or None: the one that MUSTER_<MODULE>_PYTHON names, a stranger's, this one, or Debian's, which
    alone sees Debian's modules. They are not imported, which takes some of them seconds."""
    named = os.environ.get(f"MUSTER_{modules[0].upper()}_PYTHON")
    for python in (named, stranger_path(f"{modules[0]}/bin/python"), sys.executable, "/usr/bin/python3"):
        command = [python, "-c", FINDS_ALL, *modules]
        if python and os.path.exists(python) and subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return python
    return None


def stranger_python(module):
    """An interpreter with a module that tests/tools/install-strangers installs."""
    return find_python(module) or skip(stranger_is_missing(module))


def run_with(module, package):
    """Go on in an interpreter that has this module of a Debian package."""
    if module in sys.modules:
        return
    try:
        __import__(module)
    except ImportError:
        python = find_python(module) or skip(f"the Python module {module} is not installed (Debian: {package})")
        os.execv(python, [python, *sys.argv])
