"""The shipped queries give the answers that plain Python gives for the rows: on DuckDB and on
the engines that CAIRN_TEST_ENGINE names, pyspark and chdb (ClickHouse)."""

import collections
import json
import os
import pathlib
import tempfile
import unittest

import fleet_python
from tool_path import TOOLS

ENGINES = os.environ.get("CAIRN_TEST_ENGINE", "").split()
MISSING = fleet_python.enter("numpy", "pyarrow", "duckdb", *ENGINES)

MEAN_SITES = 20
PROCESSES, DUMPS, SITES = 64, 4, 30


def query(name):
    return (TOOLS / "fleet" / f"{name}.sql").read_text().strip().rstrip(";")


def mean_by_release(rows):
    """{(program, release): {(site, stack): bytes a dump}}"""
    dumps, sums = collections.defaultdict(set), collections.defaultdict(collections.Counter)
    for row in rows:
        key = row["program"], row["release"]
        dumps[key].add((row["host"], row["pid"], row["time"]))
        sums[key][row["site"], row["stack"]] += row["inuse_bytes"]
    return {key: {site: size / len(dumps[key]) for site, size in sites.items()}
            for key, sites in sums.items()}


def largest(counted, count=MEAN_SITES):
    return sorted(counted.items(), key=lambda item: -item[1])[:count]


class Truth:
    """The answers, by plain Python over rows as dictionaries."""

    def __init__(self, profile, stats):
        self.profile, self.stats = profile, stats

    def top_sites(self):
        last, sums, processes = {}, collections.Counter(), collections.Counter()
        for row in self.profile:
            key = row["host"], row["pid"], row["program"]
            last[key] = max(last.get(key, row["time"]), row["time"])
        for row in self.profile:
            if last[row["host"], row["pid"], row["program"]] == row["time"]:
                sums[row["program"], row["stack"]] += row["inuse_bytes"]
                processes[row["program"], row["stack"]] += 1
        return [(program, stack, size, processes[program, stack])
                for (program, stack), size in largest(sums)]

    def top_sites_by_release(self):
        return [(program, release, place, stack, size)
                for (program, release), sites in sorted(mean_by_release(self.profile).items())
                for place, ((_, stack), size) in enumerate(largest(sites), 1)]

    def growth_by_release(self):
        means, first = mean_by_release(self.profile), {}
        for row in self.profile:
            key = row["program"], row["release"]
            first[key] = min(first.get(key, row["time"]), row["time"])
        growth = {}
        for program in {program for program, _ in means}:
            order = sorted((first[key], key[1]) for key in means if key[0] == program)
            for (_, before), (_, release) in zip(order, order[1:]):
                older = means[program, before]
                for site, size in means[program, release].items():
                    growth[program, before, release, site[1]] = size - older.get(site, 0)
        return [(*key, size) for key, size in largest(growth)]

    def growing_processes(self):
        looks = collections.defaultdict(list)
        for row in self.stats:
            looks[row["host"], row["pid"]].append((row["time"], row["allocated_bytes"]))
        growth = {key: max(seen)[1] - min(seen)[1] for key, seen in looks.items()}
        return [(*key, size) for key, size in largest(growth) if size > 0]

    def pinned_by_release(self):
        rows = collections.defaultdict(list)
        for row in self.stats:
            rows[row["program"], row["release"]].append(
                (row["allocated_bytes"], row["active_bytes"] - row["allocated_bytes"]))
        means = [(*key, len(seen), *(sum(column) / len(seen) for column in zip(*seen)))
                 for key, seen in rows.items()]
        return sorted(means, key=lambda row: (-row[4], row[0], row[1]))


# The columns of a query that are compared, in the order of the expected rows.
COLUMNS = {
    "top_sites": ("program", "stack", "bytes", "processes"),
    "top_sites_by_release": ("program", "release", "place", "stack", "bytes_a_dump"),
    "growth_by_release": ("program", "release_before", "release", "stack", "growth"),
    "growing_processes": ("host", "pid", "growth"),
    "pinned_by_release": ("program", "release", "looks", "allocated", "free_in_pages_in_use"),
}


class Queries:
    """The cases; a subclass runs a query on its engine."""

    @classmethod
    def setUpClass(cls):
        # pylint: disable=import-outside-toplevel
        import make_fleet
        import pyarrow.parquet
        cls.folder = tempfile.TemporaryDirectory()
        place = pathlib.Path(cls.folder.name)
        cls.rows = make_fleet.make(place, PROCESSES, DUMPS, SITES)
        tables = {kind: pyarrow.parquet.read_table(str(next(place.glob(f"{kind}-*"))))
                  for kind in ("profile", "stats")}
        cls.truth = Truth(tables["profile"].to_pylist(), tables["stats"].to_pylist())
        cls.open(place)

    @classmethod
    def tearDownClass(cls):
        cls.close()
        cls.folder.cleanup()

    def check(self, name):
        rows = self.ask(query(name))
        expected = getattr(self.truth, name)()
        self.assertEqual(len(rows), len(expected))
        self.assertGreater(len(rows), 0)
        for row, wanted in zip(rows, expected):
            for column, value in zip(COLUMNS[name], wanted):
                if isinstance(value, str):
                    self.assertEqual(row[column], value)
                else:
                    self.assertAlmostEqual(float(row[column]) / value, 1, 9)
        return rows

    def test_top_sites(self):
        self.check("top_sites")

    def test_top_sites_by_release(self):
        rows = self.check("top_sites_by_release")
        self.assertEqual(len(rows), 8 * 4 * MEAN_SITES)

    def test_growth_by_release(self):
        rows = self.check("growth_by_release")
        self.assertEqual({row["site"] for row in rows[:8]}, {"planted_growth"})
        self.assertEqual({row["site"] for row in rows[8:16]}, {"planted_news"})
        self.assertEqual({row["release"] for row in rows[:16]}, {"2.0"})

    def test_growing_processes(self):
        self.check("growing_processes")

    def test_pinned_by_release(self):
        self.check("pinned_by_release")

    def test_every_query_is_tested(self):
        self.assertEqual({path.stem for path in (TOOLS / "fleet").glob("*.sql")}, set(COLUMNS))
        self.assertEqual(self.rows, PROCESSES * DUMPS * SITES)


@unittest.skipIf(MISSING, MISSING)
class DuckDbTest(Queries, unittest.TestCase):
    @classmethod
    def open(cls, place):
        import duckdb  # pylint: disable=import-outside-toplevel
        cls.engine = duckdb.connect()
        for kind in ("profile", "stats"):
            cls.engine.execute(f"CREATE VIEW {kind} AS SELECT * FROM '{place}/{kind}-*.parquet'")

    @classmethod
    def close(cls):
        cls.engine.close()

    def ask(self, text):
        answer = self.engine.execute(text)
        names = [column[0] for column in answer.description]
        return [dict(zip(names, row)) for row in answer.fetchall()]


@unittest.skipUnless("chdb" in ENGINES, "CAIRN_TEST_ENGINE does not name chdb")
@unittest.skipIf(MISSING, MISSING)
class ClickHouseTest(Queries, unittest.TestCase):
    @classmethod
    def open(cls, place):
        from chdb import session  # pylint: disable=import-outside-toplevel
        cls.engine = session.Session(str(place / "clickhouse"))
        cls.engine.query("CREATE DATABASE fleet")
        cls.engine.query("USE fleet")
        for kind in ("profile", "stats"):
            cls.engine.query(f"CREATE VIEW {kind} AS SELECT * FROM "
                             f"file('{place}/{kind}-*.parquet')")

    @classmethod
    def close(cls):
        cls.engine.close()

    def ask(self, text):
        return json.loads(str(self.engine.query(text, "JSON")))["data"]


@unittest.skipUnless("pyspark" in ENGINES, "CAIRN_TEST_ENGINE does not name pyspark")
@unittest.skipIf(MISSING, MISSING)
class SparkTest(Queries, unittest.TestCase):
    @classmethod
    def open(cls, place):
        from pyspark.sql import SparkSession  # pylint: disable=import-outside-toplevel
        cls.engine = (SparkSession.builder.master("local[2]").appName("cairn")
                      .config("spark.ui.enabled", "false")
                      .config("spark.driver.bindAddress", "127.0.0.1")
                      .config("spark.driver.host", "127.0.0.1")
                      .config("spark.sql.shuffle.partitions", "4").getOrCreate())
        for kind in ("profile", "stats"):
            files = [str(path) for path in sorted(place.glob(f"{kind}-*.parquet"))]
            cls.engine.read.parquet(*files).createOrReplaceTempView(kind)

    @classmethod
    def close(cls):
        cls.engine.stop()

    def ask(self, text):
        return [row.asDict() for row in self.engine.sql(text).collect()]


if __name__ == "__main__":
    unittest.main()
