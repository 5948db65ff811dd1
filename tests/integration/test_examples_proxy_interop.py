#!/usr/bin/env python3
"""Every interop case through examples/proxy.c: metadata, status details, compression, cancellation and deadlines pass it."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import guard

guard.enter()
import interop_roles as roles
import needs

server = roles.Server([needs.program("interop_server"), "--port=0"])
proxy = roles.Server([needs.program("proxy"), "--listen", "127.0.0.1:0", "--to", f"127.0.0.1:{server.port}"])
failed = 0
for case in roles.CASES:
    passed, text = roles.run_client(proxy.port, case, *(roles.SOAK if "soak" in case else []))
    failed += not passed
    print(("ok " if passed else "FAILED ") + case + ("" if passed else f": {text}"))
for name, process in (("proxy", proxy), ("server", server)):
    code = process.stop()
    failed += code != 0
    print(f"{name} ended with {code}")
sys.exit(1 if failed else 0)
