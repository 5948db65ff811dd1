"""Whoever asks a cloud: credentials of every kind in files, each full of secrets."""
import base64
import functools
import json
import os
import shutil
import subprocess
import tempfile

from fake_clouds import SECRETS


class Person:
    """Files in a folder; the token server is base + /token. has_key: openssl could make one for a service account."""

    def __init__(self, base):
        self.folder = tempfile.TemporaryDirectory()
        self.key = self.make_key()
        self.has_key = self.key is not None
        self.marks = [line for line in (self.key or "").splitlines() if len(line) == 64][3:6]
        self.token_file = self.write("token", SECRETS["bearer"] + "\n")
        self.subject_file = self.write("subject", SECRETS["subject-token"])
        self.user = self.write("user.json", {
            "type": "authorized_user", "client_id": "me", "client_secret": SECRETS["client-secret"],
            "refresh_token": SECRETS["refresh-token"], "token_uri": base + "/token"})
        self.external = self.write("external.json", {
            "type": "external_account", "audience": "//iam/pool", "subject_token_type": "urn:jwt",
            "client_id": "me", "client_secret": SECRETS["client-secret"], "token_url": base + "/token",
            "credential_source": {"file": self.subject_file}})
        self.service = self.write("service.json", {
            "type": "service_account", "client_email": "robot@proj", "private_key": self.key or "none",
            "private_key_id": "k1", "project_id": "proj", "token_uri": base + "/token"})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    @staticmethod
    @functools.cache
    def make_key():
        """One for all: it takes long."""
        if shutil.which("openssl") is None:
            return None
        made = subprocess.run(["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
                              capture_output=True, text=True, check=False)
        return made.stdout if made.returncode == 0 else None

    def write(self, name, content):
        path = os.path.join(self.folder.name, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))
        return path

    def kubeconfig(self, server, name, has_key=False):
        """A kubeconfig in JSON (which is YAML): a token, and if asked a key without certificate."""
        user = {"token": SECRETS["kubeconfig-token"]}
        if has_key:
            user["client-key-data"] = base64.b64encode((self.key or "no key").encode()).decode()
            self.marks.append(user["client-key-data"][100:160] or user["client-key-data"])
        return self.write(name + ".kubeconfig", {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": server}}], "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]})
