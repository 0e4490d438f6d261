"""One look at many processes: a census of each, with the labels that it goes by."""

import concurrent.futures
import dataclasses
import os
import threading
import time
from typing import Optional

from cairn.errors import UserError
from cairn.fleet_find import Finder
from cairn.look import Census

FRESH_SECONDS = 1  # two servers that ask at the same time get one look


@dataclasses.dataclass
class Seen:
    """A process: its census, or the sentence why there is none."""

    labels: dict
    census: Optional[Census]
    failure: str = ""


@dataclasses.dataclass
class Look:
    """What was seen at once."""

    processes: list
    refused: int  # processes that may not be looked at, so that it is not known what they have
    seconds: float


class Fleet:  # pylint: disable=too-few-public-methods
    """The processes that were named, or at each look all that have Cairn."""

    def __init__(self, pids, host, release_variable, labels):
        self._pids, self._host, self._more = pids, host, labels
        self._release_variable = release_variable
        self._finder = Finder()
        self._lock = threading.Lock()
        self._last, self._last_time = None, 0.0
        self._workers = concurrent.futures.ThreadPoolExecutor(min(8, 2 * (os.cpu_count() or 1)))

    def _see(self, pid):
        labels = {"host": self._host, "pid": str(pid), "program": "",
                  "build_id": self._finder.build_id(pid),
                  "release": self._finder.variable(pid, self._release_variable), **self._more}
        try:
            census = Census(str(pid))
        except UserError as error:
            return Seen(labels, None, str(error))
        labels["program"] = census.target["program"]
        return Seen(labels, census)

    def look(self):
        """A look that is not older than a second."""
        with self._lock:
            if self._last is None or time.monotonic() - self._last_time > FRESH_SECONDS:
                began = time.monotonic()
                pids, refused = (self._pids, 0) if self._pids else self._finder.find()
                processes = list(self._workers.map(self._see, pids))
                if not self._pids:  # one that was found and ended meanwhile is none
                    processes = [seen for seen in processes
                                 if seen.census or os.path.exists(f"/proc/{seen.labels['pid']}")]
                self._last_time = time.monotonic()
                self._last = Look(processes, refused, self._last_time - began)
            return self._last
