"""Examples that serve, and grpcurl that asks them."""
import json
import os
import subprocess

import interop_roles as roles
import needs

DEADLINE_S = 120


class Service(roles.Server):
    """grpcurl knows its messages by reflection."""

    def __init__(self, name, *words):
        self.grpcurl = needs.stranger("grpcurl")
        super().__init__([needs.program(name), "--listen", "127.0.0.1:0", *words])
        self.address = f"127.0.0.1:{self.port}"

    def command(self, method, data):
        return [self.grpcurl, "-plaintext", "-emit-defaults", "-d", data, self.address, method]

    def ask(self, method, request=None, messages=None):
        """(answers, "") or (answers, the status)."""
        text = "".join(json.dumps(each) for each in (messages if messages is not None else [request or {}]))
        result = subprocess.run(self.command(method, "@"), input=text, capture_output=True, text=True, timeout=DEADLINE_S)
        status = ""
        if result.returncode != 0:
            status = next((line.split(":")[1].strip() for line in result.stderr.splitlines() if "Code:" in line), result.stderr)
        return answers(result.stdout), status

    def stream(self, method, request=None):
        return Stream(self.command(method, "@" if request is None else json.dumps(request)))

    def kill(self):
        self.process.kill()
        self.process.wait()


def answers(text):
    decoder, found = json.JSONDecoder(), []
    text = text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].strip()
    return found


class Stream:
    """A call that stays open: send and hear one message at a time."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.text = b""

    def send(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self):
        """The next message; None: the call is over."""
        while True:
            text = self.text.decode().lstrip()
            try:
                value, end = json.JSONDecoder().raw_decode(text)
                self.text = text[end:].encode()
                return value
            except json.JSONDecodeError:
                more = os.read(self.process.stdout.fileno(), 65536)
                if not more:
                    return None
                self.text += more

    def kill(self):
        self.process.kill()
        self.process.wait()
