"""The journal of a benchmark: every measured run, in journal.jsonl.

The first line has the options, allocators and facts of the benchmark. Each further line is one run,
written and flushed before the next one begins. A benchmark that ended early resumes by running
again with its seed: a run that the journal holds is taken from there. A last line that was cut
short by the end is dropped.
"""

import contextlib
import fcntl
import json
import os
import shutil

import bench_files
from cairn import files
from cairn.errors import UserError, os_sentence

NAME = "journal.jsonl"
PREVIOUS_NAME = "journal.previous.jsonl"
FORMAT = 1


def fingerprints(allocators):
    """The files that must not change between the runs of a benchmark: {file: digest}."""
    paths = [allocator.library for allocator in allocators if allocator.library]
    paths.append(bench_files.program("cairn-workloads"))
    found = {}
    for path in paths:
        with open(path, "rb") as file:
            found[str(path)] = files.digest(file).hexdigest()
    return found


def _whole_lines(file):
    """The lines of a journal, open for reading and writing; one that was cut short is cut off."""
    lines = file.read().split("\n")
    if lines[-1]:
        file.seek(0)
        file.truncate(len("".join(line + "\n" for line in lines[:-1]).encode()))
    file.seek(0, os.SEEK_END)
    return lines[:-1]


def _parse(lines):
    """(header, runs by their place)"""
    header, *runs = (json.loads(line) for line in lines)
    by_place = {(run["round"], run["unit"], run["allocator"]): run for run in runs}
    return {"format": header["format"], **header}, by_place


class Journal:
    """An open journal. The runs of an earlier benchmark are in `runs`."""

    def __init__(self, path, file, header, runs):
        self.path = path
        self.header = header
        self.runs = runs  # {(round, unit's name, allocator's name): entry}
        self._file = file

    @staticmethod
    def _lock(file, path):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{path.parent}: another benchmark is writing there") from None

    @classmethod
    def create(cls, directory, header):
        """Makes a new journal; an existing one becomes the previous one."""
        path = directory / NAME
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(path.open("a+", encoding="utf-8"))
            cls._lock(file, path)
            if path.stat().st_size:
                shutil.copyfile(path, directory / PREVIOUS_NAME)
            file.truncate(0)
            journal = cls(path, file, {"format": FORMAT, **header}, {})
            journal._write(journal.header)
            stack.pop_all()
        return journal

    @classmethod
    def open(cls, directory):
        path = directory / NAME
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(path.open("r+", encoding="utf-8"))
            except OSError as error:
                raise UserError(f"--resume: {os_sentence(error)}") from None
            cls._lock(file, path)
            try:
                header, runs = _parse(_whole_lines(file))
            except (ValueError, LookupError, TypeError):
                raise UserError(f"--resume: {path} is damaged") from None
            if header["format"] != FORMAT:
                raise UserError(f"--resume: {path} is of another version of the tool")
            stack.pop_all()
        return cls(path, file, header, runs)

    def _write(self, entry):
        try:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
        except OSError as error:
            error.filename = str(self.path)
            raise

    def find(self, number, unit, allocator):
        """The journal of an earlier benchmark in that folder, or None."""
        return self.runs.get((number, unit.name, allocator.name))

    def add(self, number, unit, allocator, entry):
        self._write({"round": number, "unit": unit.name, "allocator": allocator.name, **entry})

    def close(self):
        try:
            self._file.close()
        except OSError:
            pass  # the failed write of a line was reported already
