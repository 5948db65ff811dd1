#!/usr/bin/env python3
"""Every interop case through examples/proxy.c: what stands between two programs must not show."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import interop_roles as roles


def main():
    server = roles.Server([roles.program("interop_server"), "--port=0"])
    proxy = roles.Server([roles.program("proxy"), "--listen", "127.0.0.1:0", "--to", f"127.0.0.1:{server.port}"])
    failed = 0
    for case in roles.CASES:
        passed, text = roles.run_client(proxy.port, case, *(roles.SOAK if "soak" in case else []))
        failed += not passed
        print(f"ok {case}" if passed else f"FAILED {case}: {text}")
    # Together: a server may end while the proxy's connection to it does.
    proxy.process.terminate()
    codes = server.stop(), proxy.stop()
    print(f"server and proxy ended with {codes}")
    return failed > 0 or codes != (0, 0)


sys.exit(main())
