"""A burst for PostgreSQL: pgbench fills its tables again and writes. Prints the times of the median
and the 99th percentile of the transactions.

usage: PYTHONPATH=tools/workloads postgres_load.py PGBENCH FOLDER REQUESTS CONNECTIONS PERCENT
    PAUSE_MS
"""

import pathlib
import subprocess
import sys
import tempfile

import documents_load

MICROSECONDS_COLUMN = 2  # of a line of the log, which has a transaction


def main(pgbench, folder, requests, connections, percent, pause_ms):
    bench = [pgbench, "--host", folder, "--username", "postgres"]
    subprocess.run([*bench, "--initialize", "--quiet", "--scale", str(-(-percent // 50)),
                    "postgres"], check=True)
    rate = ["--rate", str(1000 * connections // pause_ms)] if pause_ms else []
    with tempfile.TemporaryDirectory() as logs:
        subprocess.run([*bench, "--no-vacuum", "--log", "--log-prefix", f"{logs}/log", *rate,
                        "--client", str(connections), "--transactions",
                        str(-(-10 * requests // connections)), "postgres"], check=True,
                       stdout=subprocess.DEVNULL)
        lines = [line for log in pathlib.Path(logs).iterdir()
                 for line in log.read_text(encoding="utf-8").splitlines()]
    documents_load.show([int(line.split()[MICROSECONDS_COLUMN]) / 1e6 for line in lines])


if __name__ == "__main__":
    if len(sys.argv) != 7:
        raise SystemExit(__doc__)
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))
