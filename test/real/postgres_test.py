"""PostgreSQL: TPC-B under load with a check of its balances, crashes and recovery, and queries
whose answers are compared with those on the system's malloc.

The server forks a process a connection from a parent with a large heap. It refuses to run as root,
so as root the test runs it as `postgres`, Debian's account for it.
"""

import contextlib
import glob
import os
import pathlib
import pwd
import re
import shutil
import signal

import preload
from preload import CAIRN, HERE, SYSTEM

SCALE = 2
CLIENTS = 4
TRANSACTIONS = 1500  # a client

# Every statement of TPC-B adds one delta to an account, a teller, a branch and the history.
BALANCES = """
    SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history),
           (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM pgbench_history),
           (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(delta) FROM pgbench_history),
           (SELECT count(*) FROM pgbench_accounts)"""
BALANCED = f"t|t|t|{SCALE * 100_000}"


class PostgresTest(preload.RealProgramTest):
    def setUp(self):
        super().setUp()
        versions = [int(path.split("/")[4]) for path in glob.glob("/usr/lib/postgresql/*/bin")]
        if not versions:
            self.fail("PostgreSQL is missing: apt-get install postgresql")
        self.bin = f"/usr/lib/postgresql/{max(versions)}/bin"
        self.user = None
        self.data = self.directory / "data"
        if os.geteuid() == 0:
            self.user = "postgres"
            account = pwd.getpwnam(self.user)
            os.chown(self.directory, account.pw_uid, account.pw_gid)
            # Only root may be able to read the build directory.
            copy = self.directory / os.path.basename(preload.library)
            shutil.copy(preload.library, copy)
            self.addCleanup(setattr, preload, "library", preload.library)
            preload.library = str(copy)
        self.run_pg("initdb", CAIRN, "--pgdata", self.data, "--username", "postgres", "--no-sync",
                    "--data-checksums", "--no-locale", "--encoding", "UTF8", "--auth", "trust",
                    expect_programs=["postgres"])

    def run_pg(self, program, allocator, *arguments, **options):
        return self.run_program([f"{self.bin}/{program}", *arguments], allocator, user=self.user,
                                env={"PGHOST": str(self.directory), "PGUSER": "postgres",
                                     "PGDATABASE": "postgres"}, **options)

    def psql(self, script, allocator=CAIRN, **options):
        return self.run_pg("psql", allocator, "--no-psqlrc", "--quiet", "--tuples-only",
                           "--no-align", "--set", "ON_ERROR_STOP=1", input=script.encode(),
                           **options).text.strip()

    def start(self, allocator):
        server = self.start_server(
            [f"{self.bin}/postgres", "-D", self.data, "-k", self.directory,
             "-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=64MB",
             "-c", "max_parallel_workers_per_gather=2", "-c", "min_parallel_table_scan_size=0",
             "-c", "parallel_setup_cost=0", "-c", "jit=off"], allocator, user=self.user)
        self.wait_until(lambda: b"is ready to accept connections" in self.server_output(server),
                        "PostgreSQL is ready", server)
        return server

    def stop(self, server):
        self.stop_server(server, signal.SIGINT)  # "fast": disconnects clients, makes a checkpoint

    def kill_all(self, server):
        """Kills all processes, as a power failure would."""
        children = pathlib.Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()
        pids = [server.pid, *map(int, children.split())]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # the children notice the first end
                os.kill(pid, signal.SIGKILL)
        self.stop_server(server, None, status=-signal.SIGKILL)
        self.wait_until(lambda: not any(map(preload.is_running, pids)),
                        "all processes of PostgreSQL are gone")

    def load(self, transactions):
        result = self.run_pg("pgbench", CAIRN, "--client", CLIENTS, "--jobs", 2, "--transactions",
                             transactions, "--no-vacuum", "--random-seed", 7)
        done = re.search(r"actually processed: (\d+)/", result.text)
        self.assertEqual(int(done.group(1)), CLIENTS * transactions)
        self.assertIn("number of failed transactions: 0", result.text)

    def test_tpcb_balances_survive_load_and_crashes(self):
        server = self.start(CAIRN)
        self.run_pg("pgbench", CAIRN, "--initialize", "--scale", SCALE, "--foreign-keys")
        self.load(TRANSACTIONS)
        self.assertEqual(self.psql("SELECT count(*) FROM pgbench_history"),
                         str(CLIENTS * TRANSACTIONS))
        self.assertEqual(self.psql(BALANCES), BALANCED)
        self.check_server(server)

        # One backend is killed: the others end, shared memory is made again, the log is replayed.
        self.psql("SELECT pg_backend_pid()\n\\gset\n\\setenv BACKEND :pg_backend_pid\n"
                  "\\! kill -KILL $BACKEND\nSELECT 1;", status=2)
        self.wait_until(lambda: self.server_output(server).count(b"is ready to accept") == 2,
                        "PostgreSQL has recovered", server)
        self.load(TRANSACTIONS // 5)
        self.assertEqual(self.psql(BALANCES), BALANCED)

        # All processes are killed during the load.
        before = int(self.psql("SELECT count(*) FROM pgbench_history"))
        self.assertEqual(before, CLIENTS * (TRANSACTIONS + TRANSACTIONS // 5))
        client = self.start_server(
            [f"{self.bin}/pgbench", "--client", CLIENTS, "--time", 30, "--no-vacuum",
             "--host", self.directory, "--username", "postgres", "postgres"], SYSTEM)
        self.wait_until(lambda: int(self.psql("SELECT count(*) FROM pgbench_history")) > before,
                        "transactions flow", client)
        self.kill_all(server)
        self.assertNotEqual(client.wait(30), 0)
        server = self.start(CAIRN)
        self.assertIn(b"automatic recovery in progress", self.server_output(server))
        self.assertGreater(int(self.psql("SELECT count(*) FROM pgbench_history")), before)
        self.assertEqual(self.psql(BALANCES), BALANCED)
        self.stop(server)

        # Tools on the system's malloc find every page and every index correct.
        self.run_pg("pg_checksums", SYSTEM, "--check", "--pgdata", self.data)
        server = self.start(SYSTEM)
        self.assertEqual(self.psql(BALANCES, SYSTEM), BALANCED)
        self.run_pg("pg_amcheck", SYSTEM, "--install-missing", "--heapallindexed", "postgres")
        self.stop(server)

    def test_queries_answer_as_on_the_system_malloc(self):
        answers = {}
        for allocator in (SYSTEM, CAIRN):
            server = self.start(allocator)
            answers[allocator] = self.psql((HERE / "postgres_work.sql").read_text(), allocator)
            if allocator == CAIRN:
                self.check_server(server)
            self.psql("DROP TABLE event", allocator)
            self.stop(server)
        self.assertEqual(len(answers[SYSTEM].splitlines()), 8)
        self.assertEqual(answers[CAIRN], answers[SYSTEM])


if __name__ == "__main__":
    preload.main()
