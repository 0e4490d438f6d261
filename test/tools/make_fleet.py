"""Makes the profiles and statistics of a fleet that does not exist, to test queries on.

FOLDER/profile-*.parquet has a row for each process, dump and site; FOLDER/stats-*.parquet a row for
each process and dump. The columns are those of `cairn-fleet profile` and `cairn-fleet stats`
(tools/fleet/README.md). Each process runs one program in one release; it has some of the sites of
its program. A few sites hold most bytes, as in real heaps. In the last release of each program, the
site `planted_growth` holds PLANTED times its former bytes, and the site `planted_news` is new.
Needs numpy and pyarrow.
"""

import numpy
import pyarrow
import pyarrow.parquet

import tool_path  # noqa: F401
from cairn_fleet.columns import DICTIONARY_BYTES, NAMES, SITES, STATS, stack_id

PROGRAMS = ("web", "api", "search", "billing", "mail", "feed", "images", "batch")
RELEASES = ("1.0", "1.1", "1.2", "2.0")
POOL = 5  # a program has this many times the sites of one of its processes
PLANTED = 8
PLANTED_BYTES = 32 << 20
START_US = 1_790_000_000_000_000
STEP_US = 600_000_000  # ten minutes between two dumps
PROCESSES_A_HOST = 20
PROCESSES_A_FILE = 100
INTERVAL = 512 << 10


class Program:
    """The sites of a program: names, stacks, and the mean bytes of each."""

    def __init__(self, name, count, random):
        self.name = name
        self.sites = [f"{name}_site_{number}" for number in range(count - 2)]
        self.sites += ["planted_growth", "planted_news"]
        middle = [f"{name}::module_{number}::handle" for number in range(60)]
        self.stacks = []
        for site in self.sites:
            frames = random.choice(middle, random.integers(4, 24))
            self.stacks.append(";".join(["_start", "main", *frames, site]))
        self.ids = numpy.array([stack_id(stack) for stack in self.stacks])
        self.means = numpy.minimum(random.pareto(1.0, count) * (64 << 10), 16 << 20) + 4096
        self.means[-2:] = PLANTED_BYTES

    def build_id(self, release):
        return f"{stack_id(self.name + release) & (1 << 64) - 1:040x}"


def text_column(indices, words):
    return pyarrow.DictionaryArray.from_arrays(pyarrow.array(indices, pyarrow.int32()),
                                               pyarrow.array(words, pyarrow.string()))


class Fleet:
    """The processes of the fleet: program, release, host and sites follow from number and seed."""

    def __init__(self, sites, dumps, seed):
        self.random = numpy.random.default_rng(seed)
        self.sites, self.dumps = sites, dumps
        self.programs = [Program(name, POOL * sites, self.random) for name in PROGRAMS]

    def process(self, number):
        """(program, release, the sites that it has, bytes of each at each dump)"""
        program = self.programs[number % len(self.programs)]
        release = number // len(self.programs) % len(RELEASES)
        chosen = self.random.choice(len(program.sites) - 2, self.sites - 2, replace=False)
        is_last = release == len(RELEASES) - 1
        chosen = numpy.append(chosen, [len(program.sites) - 2, len(program.sites) - 1])
        means = program.means[chosen] * self.random.uniform(0.5, 1.5, len(chosen))
        means[-2] = PLANTED_BYTES * (PLANTED if is_last else 1)
        means[-1] = PLANTED_BYTES if is_last else 0
        noise = self.random.uniform(0.9, 1.1, (self.dumps, len(chosen)))
        return program, release, chosen, (means * noise).astype(numpy.int64)

    def who(self, numbers, rows):
        """The columns that identify a row, `rows` rows for each dump of each process."""
        times = START_US + STEP_US * numpy.arange(self.dumps)
        each = self.dumps * rows
        hosts = [number // PROCESSES_A_HOST for number in numbers]
        names = sorted(set(hosts))
        places = {host: place for place, host in enumerate(names)}
        builds = [program.build_id(release) for program in self.programs for release in RELEASES]
        programs = [number % len(self.programs) for number in numbers]
        releases = [number // len(self.programs) % len(RELEASES) for number in numbers]
        return [
            pyarrow.array(numpy.tile(numpy.repeat(times, rows), len(numbers)),
                          pyarrow.timestamp("us", "UTC")),
            text_column(numpy.repeat([places[host] for host in hosts], each),
                        [f"host-{host:04}" for host in names]),
            pyarrow.array(numpy.repeat([1000 + number for number in numbers], each)),
            text_column(numpy.repeat(programs, each), [each.name for each in self.programs]),
            text_column(numpy.repeat(numpy.array(programs) * len(RELEASES) + releases, each),
                        builds),
            text_column(numpy.repeat(releases, each), RELEASES),
            text_column(numpy.zeros(each * len(numbers), numpy.int32), ["1.0.0"]),
        ]

    def tables(self, numbers):
        """The profiles and the statistics of these processes."""
        places, sizes, sums = [], [], []
        pool = POOL * self.sites
        for number in numbers:
            program, _, chosen, held = self.process(number)
            places.append(numpy.tile(chosen + pool * self.programs.index(program), self.dumps))
            sizes.append(held.ravel())
            sums.append(held.sum(axis=1))
        places, held, sums = map(numpy.concatenate, (places, sizes, sums))
        samples = held // INTERVAL + (held % INTERVAL * 7 % INTERVAL < held % INTERVAL)
        allocated = held * 3 + 4096
        columns = self.who(numbers, self.sites) + [
            text_column(places, [site for program in self.programs for site in program.sites]),
            text_column(places, [stack for program in self.programs for stack in program.stacks]),
            numpy.concatenate([program.ids for program in self.programs])[places],
            held, held / 96, samples, allocated, allocated / 96, samples * 3,
            numpy.full(len(held), INTERVAL)]
        names = list(SITES.names)
        stats = {name: sums // 8 for name in NAMES.values()}
        stats.update(allocated_bytes=sums, active_bytes=sums + sums // 4, thread_heaps=sums * 0 + 8)
        return (pyarrow.Table.from_arrays([pyarrow.array(column) for column in columns], names),
                pyarrow.Table.from_arrays([*self.who(numbers, 1),
                                           *(pyarrow.array(stats[name])
                                             for name in STATS.names[7:])], list(STATS.names)))


def make(folder, processes, dumps, sites, seed=1):
    """Writes the files; returns the number of rows of profiles."""
    fleet, rows = Fleet(sites, dumps, seed), 0
    for first in range(0, processes, PROCESSES_A_FILE):
        numbers = range(first, min(first + PROCESSES_A_FILE, processes))
        for kind, table in zip(("profile", "stats"), fleet.tables(numbers)):
            pyarrow.parquet.write_table(table, folder / f"{kind}-{first:06}.parquet",
                                        compression="zstd",
                                        dictionary_pagesize_limit=DICTIONARY_BYTES)
            rows += len(table) if kind == "profile" else 0
    return rows
