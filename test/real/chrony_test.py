"""chronyd with its filter of system calls (`-F`), as a server and as a client of that server.

Neither touches the system's clock. Skipped where chrony is not installed: its package replaces
systemd-timesyncd, so the machine's owner decides. CAIRN_TEST_CHRONYD may name a chronyd elsewhere.
"""

import os
import pathlib
import shutil
import unittest

import preload

SERVER = """
bindaddress 127.0.0.1
allow 127.0.0.1
local stratum 8
cmdport 0
bindcmdaddress /
"""
CLIENT = """
port 0
cmdport 0
bindcmdaddress /
"""


class ChronyTest(preload.RealProgramTest):
    def setUp(self):
        super().setUp()
        self.chronyd = (os.environ.get("CAIRN_TEST_CHRONYD")
                        or shutil.which("chronyd", path=preload.PATH))
        if self.chronyd is None or os.geteuid() != 0:
            self.skipTest("it needs chrony, and root")
        port = preload.free_port()
        (self.directory / "server").write_text(
            f"port {port}\npidfile {self.directory}/server.pid\n{SERVER}")
        (self.directory / "client").write_text(
            f"server 127.0.0.1 port {port} iburst maxsamples 1\n"
            f"pidfile {self.directory}/client.pid\n{CLIENT}")

    def start(self, name, *options):
        program = f"LD_PRELOAD={preload.library} exec {self.chronyd} -x -u root {' '.join(options)}"
        return self.start_server(["sh", "-c", f"{program} -f {self.directory}/{name}"],
                                 preload.SYSTEM)

    def test_server_and_client_tell_the_time(self):
        server = self.start("server", "-d", "-F", "1")
        self.wait_until(lambda: b"Loaded seccomp filter" in self.server_output(server),
                        "the filter is loaded", server)
        self.assertIn(preload.library, pathlib.Path(f"/proc/{server.pid}/maps").read_text())
        for level in ("1", "2"):
            client = self.start("client", "-Q", "-t", "60", "-F", level)
            self.assertEqual(client.wait(120), 0, preload.tail(self.server_output(client)))
            self.assertIn(b"System clock wrong by", self.server_output(client))
        self.assertIsNone(server.poll(), preload.tail(self.server_output(server)))


if __name__ == "__main__":
    preload.main()
