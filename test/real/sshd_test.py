"""Logins by key on Debian's sshd, whose authenticating child runs in a sandbox: a filter of system
calls ends it at a call that is not allowed. Each login has a child of its own.

The server has a port, a host key and a /run of its own. Skipped where a namespace for that cannot
be made.
"""

import os
import pathlib
import subprocess
import unittest

import preload

LOGINS = 5
CONFIGURATION = """
ListenAddress 127.0.0.1
StrictModes no
UsePAM no
PidFile none
LogLevel VERBOSE
"""
OWN_RUN = "mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd"


class SshdTest(preload.RealProgramTest):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("only root can start a server that lets somebody log in")
        self.sshd = self.need("sshd", "openssh-server")
        self.ssh = self.need("ssh", "openssh-client")
        made = subprocess.run(["unshare", "-m", "sh", "-c", OWN_RUN], capture_output=True)
        if made.returncode != 0:
            self.skipTest("no mount namespace can be made here")
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
                            self.directory / key], check=True)
        self.port = preload.free_port()
        keys = f"HostKey {self.directory}/host\nAuthorizedKeysFile {self.directory}/user.pub\n"
        (self.directory / "sshd_config").write_text(f"Port {self.port}\n{keys}{CONFIGURATION}")

    def log_in(self):
        options = ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null",
                   "LogLevel=ERROR", "ConnectTimeout=60", f"IdentityFile={self.directory}/user"]
        argv = [self.ssh, "-F", "none", "-p", str(self.port), *(f"-o{each}" for each in options),
                "root@127.0.0.1", "echo logged in"]
        return subprocess.run(argv, capture_output=True, text=True, timeout=120,
                              env={"PATH": preload.PATH, "HOME": str(self.directory)})

    def test_each_login_by_key_succeeds(self):
        program = (f"{OWN_RUN} && LD_PRELOAD={preload.library} exec {self.sshd} -D -e "
                   f"-f {self.directory}/sshd_config")
        server = self.start_server(["unshare", "-m", "sh", "-c", program], preload.SYSTEM)
        self.wait_until(lambda: b"Server listening" in self.server_output(server),
                        "it listens", server)
        maps = pathlib.Path(f"/proc/{server.pid}/maps").read_text()
        self.assertIn(preload.library, maps)
        for _ in range(LOGINS):
            done = self.log_in()
            self.assertEqual((done.returncode, done.stdout), (0, "logged in\n"),
                             done.stderr + preload.tail(self.server_output(server)))
        self.check_messages(self.server_output(server))


if __name__ == "__main__":
    preload.main()
