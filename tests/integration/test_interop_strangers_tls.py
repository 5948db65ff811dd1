#!/usr/bin/env python3
"""The official interop cases between muster and others, in both directions, over TLS."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import guard

guard.enter()
import interop_strangers

sys.exit(interop_strangers.run(is_tls=True))
