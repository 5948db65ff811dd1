#!/usr/bin/env python3
"""h2spec, strict, against the interop server: generic, http2 and hpack, all 146 cases, in plain text and over TLS."""
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import guard

guard.enter()
import interop_roles as roles
import needs

H2SPEC = needs.stranger("h2spec")
INTEROP_SERVER = needs.program("interop_server")
needs.program("interop_client")
needs.tool("openssl", "openssl")
CASES = 146
# It takes 16 KiB for the largest frame, whatever the server's settings say; ours says 1 MiB. This one is asked again, with
# headers that are too large for that.
LARGE_FRAME = "Sends a large size HEADERS frame that exceeds the SETTINGS_MAX_FRAME_SIZE"


def ask(port, *words):
    """Names of the cases that passed and failed, and all that was printed."""
    command = [H2SPEC, "-h", "127.0.0.1", "-p", port, "--strict", *words]
    text = subprocess.run(command, capture_output=True, text=True, timeout=roles.PATIENCE_S).stdout
    cases = text.split("\nFailures:")[0]
    return re.findall(r"✔ \d+: (.*)", cases), re.findall(r"× \d+: (.*)", cases), text


def check(certificates):
    """True: all is well. certificates None: plain text."""
    tls = ["-t", "-k"] if certificates else []
    server = roles.Server([INTEROP_SERVER, "--port=0", *roles.tls_server(certificates)])
    passed, failed, text = ask(server.port, *tls, "generic", "http2", "hpack")
    if failed == [LARGE_FRAME]:
        more, failed, again = ask(server.port, *tls, "--max-header-length", "300000", "http2/4.2/3")
        passed += more
        text += again
    is_alive, _ = roles.run_client(server.port, "large_unary", *roles.tls_client(certificates))
    code = server.stop()
    print(f"{'TLS' if tls else 'plain text'}: {len(passed)} passed, {len(failed)} failed; afterwards a call "
          f"{'passed' if is_alive else 'failed'}, and the server ended with {code}")
    if len(passed) == CASES and not failed and is_alive and code == 0:
        return True
    print(text[text.find("\nFailures:"):])
    return False


with tempfile.TemporaryDirectory() as folder:
    is_right = check(None) & check(roles.make_certificate(folder))
sys.exit(0 if is_right else 1)
