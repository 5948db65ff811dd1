#!/usr/bin/env python3
"""connectconformance against the library: all its cases of gRPC, in plain text, over TLS and with client certificates."""
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

FEATURES = """features:
  versions: [HTTP_VERSION_2]
  protocols: [PROTOCOL_GRPC]
  codecs: [CODEC_PROTO]
  compressions: [COMPRESSION_IDENTITY, COMPRESSION_GZIP]
  supports_h2c: true
  supports_tls: true
  supports_tls_client_certs: true
  supports_trailers: true
  supports_message_receive_limit: true
"""
# mode: cases that pass, cases that the suite has wrong
MODES = {"server": (570, 0), "client": (642, 4)}
# It wants UNKNOWN; gRPC's http-grpc-status-mapping.md has had 431 as INTERNAL since.
WRONG = "**/request-header-fields-too-large"


def check(mode, right, wrong):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        config.write(FEATURES)
        config.flush()
        command = [needs.stranger("connectconformance"), "--conf", config.name, "--mode", mode,
                   *(["--known-failing", WRONG] if wrong else []), "--", needs.program("conformance_" + mode)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=4 * roles.PATIENCE_S)
    text = done.stdout + done.stderr
    seen = re.search(r"(\d+) passed, (\d+) failed(?:$|\s)", text)
    print(f"{mode}: {seen[0].strip() if seen else 'no result'}; expected {right} passed, {wrong} that the suite has wrong")
    is_sound = "Sanitizer" not in text and "runtime error" not in text
    is_right = done.returncode == 0 and seen is not None and int(seen[1]) == right and int(seen[2]) == 0 and is_sound
    if not is_right:
        print(text[-6000:])
    return is_right


sys.exit(0 if all([check(mode, *cases) for mode, cases in MODES.items()]) else 1)
