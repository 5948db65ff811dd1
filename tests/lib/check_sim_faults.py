#!/usr/bin/env python3
"""Faults that tests/tools/mutate-sim puts into the product still fit their files: each old text stands there once."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.exit(subprocess.run([ROOT / "tests" / "tools" / "mutate-sim", "--check"], check=False).returncode)
