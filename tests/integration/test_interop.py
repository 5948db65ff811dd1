#!/usr/bin/env python3
"""Every case of the interop client against the interop server; and what the programs say to wrong arguments."""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import guard

guard.enter()
import interop_roles as roles
import needs

for name in ("interop_server", "interop_client"):
    needs.program(name)
needs.tool("openssl", "openssl")
failed = 0


def expect(what, is_right, text=""):
    global failed
    failed += not is_right
    print(("ok " if is_right else "FAILED ") + what + ("" if is_right else f": {text}"))


def check_cases():
    server = roles.Server([needs.program("interop_server"), "--port=0", "--use_tls=false", "--use_alts", "false"])
    for case in roles.CASES:
        expect(case, *roles.run_client(server.port, case, *(roles.SOAK if "soak" in case else [])))
    threads = ["--soak_num_threads", "5", "--soak_min_time_ms_between_rpcs", "1", *roles.SOAK]
    expect("rpc_soak, five at a time", *roles.run_client(server.port, "rpc_soak", *threads))
    expect("channel_soak, five at a time", *roles.run_client(server.port, "channel_soak", *threads))
    late = ["--soak_iterations=4", "--soak_per_iteration_max_acceptable_latency_ms=0", "--soak_overall_timeout_seconds=600"]
    passed, text = roles.run_client(server.port, "rpc_soak", *late)
    expect("calls that are too slow fail the soak", not passed and "acceptable" in text, text)
    expect("so many may", *roles.run_client(server.port, "rpc_soak", *late, "--soak_max_failures=4"))
    expect("additional metadata", *roles.run_client(server.port, "empty_unary", "--additional_metadata=a:b;c-bin:d"))
    expect("the server ends in order", server.stop() == 0)


def check_tls():
    with tempfile.TemporaryDirectory() as folder:
        certificates = roles.make_certificate(folder)
        server = roles.Server([needs.program("interop_server"), "--port=0", *roles.tls_server(certificates)])
        for case in roles.CASES:
            soak = roles.SOAK if "soak" in case else []
            expect(case + " over TLS", *roles.run_client(server.port, case, *roles.tls_client(certificates), *soak))
        other = [f"--ca_file={certificates}/ca.pem", "--use_tls", "--server_host_override=foo.test.google.com"]
        passed, text = roles.run_client(server.port, "empty_unary", *other)
        expect("another name is not in the certificate", not passed and "UNAVAILABLE" in text, text)
        passed, text = roles.run_client(server.port, "empty_unary", "--use_tls", f"--server_host_override={roles.TLS_HOST}")
        expect("the system's authorities do not know it", not passed and "UNAVAILABLE" in text, text)
        passed, text = roles.run_client(server.port, "empty_unary")
        expect("plain text is no TLS", not passed and "UNAVAILABLE" in text, text)
        expect("the TLS server ends in order", server.stop() == 0)


def check_arguments():
    passed, text = roles.run_client(1, "no_such_case")
    expect("an unknown case shows all", not passed and all(case in text for case in roles.CASES), text)
    passed, text = roles.run_client(1, "jwt_token_creds")
    expect("a case of the cloud is not run", not passed and "account at Google" in text, text)
    passed, text = roles.run_client(1, "empty_unary", "--server_prot=1")
    expect("a flag mistyped is named", not passed and "--server_port" in text, text)
    passed, text = roles.run_client(1, "empty_unary")
    expect("no server", not passed and "UNAVAILABLE" in text, text)
    done = subprocess.run([needs.program("interop_server"), "--port=0", "--use_alts"], capture_output=True, text=True,
                          timeout=roles.PATIENCE_S)
    expect("ALTS is not served", done.returncode == 1 and "--use_alts" in done.stderr, done.stderr)


check_cases()
check_tls()
check_arguments()
sys.exit(failed > 0)
