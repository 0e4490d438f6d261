"""The options of `cairn-bench`, on the command line and in a journal."""

import dataclasses
import pathlib
from dataclasses import dataclass, field
from typing import List, Optional

import typer

import bench_files
import bench_machine
from bench_rows import Settings
from cairn.errors import UserError

FULL_ROUNDS, QUICK_ROUNDS = 5, 3
QUICK_SECONDS = 110  # the rest of the two minutes that --quick promises is for the report
SEED = 20240607
MEMORY_GIB = 4.0
MEMORY_SHARE = 0.75  # of the available memory, on machines that have less

QUICK = typer.Option(False, "--quick", help="Small sizes, short passes, done within two minutes.")
ROUNDS = typer.Option(
    None, min=1, show_default=False,
    help=f"Recorded rounds; {FULL_ROUNDS} without it, up to {QUICK_ROUNDS} with --quick.")
ROWS = typer.Option(
    None, show_default=False,
    help="Only these rows or groups; names with * and ?, commas between; may be repeated.")
ALLOCATORS = typer.Option(
    None, show_default=False, help="Only these allocators, commas between; may be repeated.")
PEER = typer.Option(
    None, metavar="NAME=/path/lib.so", show_default=False,
    help="One more allocator to compare; may be repeated. NAME@VERSION states its version.")
PEERS = typer.Option(
    None, "--peers", metavar="FILE", show_default=False,
    help="Peers of a file, a line each: name, version, library. A packaged one whose name begins "
         "theirs is left out.")
OUT = typer.Option(
    None, "--out", metavar="DIR", show_default=False,
    help="Where the report goes; build/bench without it.")
LIST = typer.Option(False, "--list", help="List the rows and exit.")
SECONDS = typer.Option(1.0, min=0.001, max=60, help="Duration of the warm passes of each run.")
NODES = typer.Option(0, min=0, show_default=False,
                     help="Nodes of group B's lists; 100 million without it.")
THREADS = typer.Option(0, min=0, max=256, show_default=False,
                       help="Threads of the rows that leave it open.")
MEMORY = typer.Option(
    None, min=0.1, metavar="GIB", show_default=False,
    help=f"Rows that may need more are skipped or made smaller; {MEMORY_GIB:g} without it, or "
         "three quarters of what is available where that is less.")
COLD = typer.Option(
    False, "--cold", help="Do not touch and free, before each run, the memory that it may need.")
NO_WARM_UP = typer.Option(False, "--no-warm-up", help="No round before the recorded ones.")
WRITE_GOALS = typer.Option(
    None, "--write-goals", metavar="FILE", show_default=False, exists=True, writable=True,
    help="Writes what the goals of these rows measured into the table of this page.")
SEED_OPTION = typer.Option(SEED, "--seed", help="Seed of the run order.")
INSTALL = typer.Option(
    False, "--install", help="Install Debian's packages of peers and programs that are missing.")
NO_BUILD = typer.Option(False, "--no-build", help="Use what is built.")
RESUME = typer.Option(
    None, "--resume", metavar="DIR", show_default=False,
    help="Go on with a benchmark that ended early, with its options; --rounds may change.")


def words(texts):
    """The words of an option that may be repeated or hold several words with commas between."""
    return [word for text in texts or [] for word in text.split(",") if word]


@dataclass(frozen=True)
class Options:
    """The options of a benchmark."""

    quick: bool = False
    rounds: Optional[int] = None
    rows: List[str] = field(default_factory=list)
    allocators: List[str] = field(default_factory=list)
    peers: List[str] = field(default_factory=list)
    seconds: float = 1.0
    nodes: int = 0
    threads: int = 0
    memory_gib: Optional[float] = None
    seed: int = SEED
    cold: bool = False
    warm_up: bool = True

    @property
    def rounds_wanted(self):
        return self.rounds or (QUICK_ROUNDS if self.quick else FULL_ROUNDS)

    @property
    def deadline_s(self):
        return QUICK_SECONDS if self.quick and not self.rounds else None

    def settings(self):
        return Settings(quick=self.quick, seconds=self.seconds, threads=self.threads,
                        nodes=self.nodes, memory_mib=int(self.memory_gib * 1024),
                        cold=self.cold)

    def with_memory(self, available_mib):
        """These options with a fixed amount of memory: a requested amount must be available, and
        without a request the machine decides."""
        available_gib = available_mib / 1024 if available_mib else None
        if self.memory_gib is None:
            most = max(0.1, int(available_gib * MEMORY_SHARE * 10) / 10) if available_gib else 1e9
            return dataclasses.replace(self, memory_gib=min(MEMORY_GIB, most))
        if available_gib and self.memory_gib > available_gib:
            raise UserError(f"--memory {self.memory_gib:.1f}: only {available_gib:.1f} GiB are "
                            "available")
        return self

    def as_json(self):
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(value):
        names = {one.name for one in dataclasses.fields(Options)}
        if set(value) != names:
            raise UserError("its options are those of another version of the tool")
        return Options(**value)


def check_alone(context):
    """Refuses other options with --resume, which uses those of the resumed benchmark."""
    allowed = {"resume", "rounds", "install", "write_goals"}  # `make bench` passes --install always
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name)
        if source and source.name == "COMMANDLINE" and parameter.name not in allowed:
            raise UserError(f"--resume goes with --rounds only, not with {parameter.opts[0]}: the "
                            "other options are those that the benchmark was begun with")


def default_directory():
    return bench_files.source_directory() / "build" / "bench"


def memory_of_machine(options):
    """Options with a fixed amount of memory, and a sentence where the machine has little."""
    settled = options.with_memory(bench_machine.available_mib())
    if options.memory_gib is None and settled.memory_gib < MEMORY_GIB:
        return settled, (f"rows may need {settled.memory_gib:g} GiB, three quarters of what is "
                         "available; --memory changes that")
    return settled, None


def make_directory(path: pathlib.Path, option="--out"):
    try:
        path.mkdir(parents=True, exist_ok=True)
        with (path / "results.csv").open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise UserError(f"{option} {path}: {error.strerror}") from None
