#!/usr/bin/env python3
"""Times the queries of tools/fleet over the files of a folder, such as dev/make_fleet.py makes.

usage: ask_fleet.py FOLDER [--engine duckdb|spark] [--part N] [--threads N] [--only QUERY]

--part 4 takes every fourth file. One line a query: its rows, seconds by the clock and of processor
time (with all threads), and at the end the peak of memory. Each engine keeps below 8 GiB.
Needs what dev/fleet-python installs, for Spark also PySpark and a Java.
"""

import argparse
import os
import pathlib
import resource
import time

QUERIES = pathlib.Path(__file__).resolve().parents[1] / "tools" / "fleet"
KINDS = ("profile", "stats")


def duckdb_engine(files, threads):
    import duckdb  # pylint: disable=import-outside-toplevel
    engine = duckdb.connect()
    engine.execute("SET memory_limit = '8GB'")
    engine.execute(f"SET threads = {threads}")
    for kind in KINDS:
        listed = ", ".join(f"'{path}'" for path in files[kind])
        engine.execute(f"CREATE VIEW {kind} AS SELECT * FROM read_parquet([{listed}])")
    return lambda text: engine.execute(text).fetchall()


def spark_engine(files, threads):
    from pyspark.sql import SparkSession  # pylint: disable=import-outside-toplevel
    engine = (SparkSession.builder.master(f"local[{threads}]").appName("cairn")
              .config("spark.ui.enabled", "false").config("spark.driver.memory", "8g")
              .config("spark.driver.bindAddress", "127.0.0.1")
              .config("spark.driver.host", "127.0.0.1")
              .config("spark.ui.showConsoleProgress", "false")
              .config("spark.sql.shuffle.partitions", str(4 * threads)).getOrCreate())
    for kind in KINDS:
        engine.read.parquet(*map(str, files[kind])).createOrReplaceTempView(kind)
    return lambda text: engine.sql(text.strip().rstrip(";")).collect()


def processor_seconds():
    """Of this process, and of the Java that Spark has started."""
    worked = time.process_time()
    for place in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            words = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(words[1]) == os.getpid():
            worked += (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return worked


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--engine", choices=("duckdb", "spark"), default="duckdb")
    parser.add_argument("--part", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="*")
    options = parser.parse_args()
    files = {kind: sorted(options.folder.glob(f"{kind}-*.parquet"))[::options.part]
             for kind in KINDS}
    if not all(files.values()):
        parser.error(f"{options.folder} has no files of dev/make_fleet.py")
    ask = (duckdb_engine if options.engine == "duckdb" else spark_engine)(files, options.threads)
    (rows,), = ask("SELECT COUNT(*) FROM profile")
    print(f"{options.engine}, {options.threads} threads, {rows} rows in "
          f"{len(files['profile'])} files")
    for path in sorted(QUERIES.glob(f"{options.only}.sql")):
        began, worked = time.monotonic(), processor_seconds()
        answer = ask(path.read_text())
        print(f"{path.stem:24} {len(answer):5} rows {time.monotonic() - began:7.1f} s "
              f"{processor_seconds() - worked:7.1f} s of processor", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak memory {peak >> 10} MiB" if options.engine == "duckdb" else "")


if __name__ == "__main__":
    main()
