"""A certificate authority in a folder, by the openssl program: for tests that start programs under TLS."""
import os
import shutil
import subprocess
import tempfile

OPENSSL = shutil.which("openssl")


class TlsFiles:
    """ca.pem, and NAME.pem with NAME.key for each certificate that is asked for."""

    def __init__(self, add_cleanup):
        self.folder = tempfile.mkdtemp(prefix="muster-tls-")
        add_cleanup(shutil.rmtree, self.folder)
        self.ca = self.path("ca.pem")
        self._run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", "/CN=test-ca",
                  "-keyout", self.path("ca.key"), "-out", self.ca)

    def path(self, name):
        return os.path.join(self.folder, name)

    def _run(self, *args):
        subprocess.run([OPENSSL, *args], check=True, capture_output=True)

    def issue(self, name, alt_names="DNS:localhost,IP:127.0.0.1,IP:::1"):
        """Paths of a certificate and its key."""
        cert, key, request, extensions = (self.path(name + end) for end in (".pem", ".key", ".csr", ".ext"))
        with open(extensions, "w") as file:
            file.write(f"basicConstraints=critical,CA:FALSE\nsubjectAltName={alt_names}\n")
        self._run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        self._run("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.path("ca.key"), "-CAcreateserial", "-days", "30",
                  "-extfile", extensions, "-out", cert)
        return cert, key
