#!/usr/bin/env python3
"""The negative HTTP/2 interop cases: the interop client before a strict peer (tests/lib/strict_peer.py)."""
import pathlib
import sys

LIB = pathlib.Path(__file__).resolve().parents[1] / "lib"
sys.path.insert(0, str(LIB))
import guard

guard.enter()
import interop_roles as roles
import needs

CASES = """goaway rst_after_header rst_during_data rst_after_data ping max_streams data_frame_padding
no_df_padding_sanity_test""".split()


def main():
    python = needs.find_python("h2", "hyperframe") or needs.skip("the Python module h2 is not installed (Debian: python3-h2)")
    needs.program("interop_client")
    failed = 0
    for case in CASES:
        peer = roles.Server([python, str(LIB / "strict_peer.py"), case])
        passed, text = roles.run_client(peer.port, case)
        code = peer.stop()
        verdict = peer.process.stdout.read().strip()
        is_right = passed and code == 0
        failed += not is_right
        print(("ok " if is_right else "FAILED ") + verdict + ("" if passed else "\n" + text))
    return failed > 0


sys.exit(main())
