"""The rules of `cairn advise`, which interpret the sums of a site.

A verdict is a guess from evidence until a replay has measured it. Each rule takes the sums of a
site and of the program, and returns the policy for a replay, or None. The first rule that fits
wins. A leak may have a second verdict, because blocks that are kept to the end may be the program's
data.
"""

import dataclasses
from typing import Dict, List, Optional

LEAST_SHARE = 0.03  # of the program's events or memory; smaller shares are ignored
NEARLY_ALL = 0.95
MOST = 0.9
ROUNDS = 32  # a rare event may have happened by chance
TRACE_CUT = 2  # the state of a trace without an end
PAGE_BYTES = 4096
CHUNK_LEAST = 1024  # least bytes of a block that the program's own allocator divides


@dataclasses.dataclass
class Verdict:
    """The allocator that a site would gain from, according to its evidence."""

    kind: str
    policy: Optional[str]  # for a replay; None when there is nothing to replay
    sites: List[Dict]
    evidence: str
    numbers: Dict


def share(part, whole):
    return part / whole if whole else 0.0


def _often(site, whole):
    """Whether the site makes enough of the program's calls for their time to matter."""
    return share(site["allocations"] + site["frees"] + site["resizes"],
                 whole["events"]) >= LEAST_SHARE


def _is_freed(site, part=NEARLY_ALL):
    return site["frees"] >= part * site["allocations"]


def _all_end(site, whole):
    """Whether each block of the site is freed. An allocator for known lifetimes cannot serve other
    sites: a block that is never freed would hold the blocks behind it, or end too early. If the
    trace was cut, some blocks were about to be freed."""
    return _is_freed(site, NEARLY_ALL if whole["state"] == TRACE_CUT else 1)


def _of_frees(site, name):
    return share(site[name], site["frees"])


def allocated_at(points, values, part):
    """The bytes that a site had allocated when the program had allocated this part of its total."""
    wanted, before = part * points[-1][2], (0, 0)
    for point, value in zip(points, values):
        if point[2] >= wanted:
            step = point[2] - before[0]
            return before[1] + (value - before[1]) * share(wanted - before[0], step)
        before = point[2], value
    return before[1]


def leak(site, whole):
    """The site grows over the whole run and its blocks are never freed."""
    if site["allocations"] < 64 or site["live"] < MOST * site["allocations"] or \
            site["live_bytes"] < LEAST_SHARE * whole["peak_bytes"]:
        return None
    marks = [allocated_at(whole["points"], site["points_allocated"], quarter / 4)
             for quarter in range(5)]
    grown = [share(later - earlier, marks[-1]) for earlier, later in zip(marks, marks[1:])]
    if min(grown[1:]) < 0.1:  # other allocations at the start hide the first quarter
        return None
    return None, "never freed", {"live_bytes": site["live_bytes"]}


def reserve(site, whole):
    """The blocks grow step by step."""
    if site["grown_blocks"] < 0.5 * site["allocations"] or site["grown_blocks"] < 8 or not (
            _often(site, whole) or
            site["copied_bytes"] >= LEAST_SHARE * whole["allocated_bytes"]):
        return None
    steps = share(site["grown_steps"], site["grown_blocks"])
    mean = share(site["grown_final_bytes"], site["grown_blocks"])
    # The size that nine of ten reach; if half of them stay far below it, the size that these reach.
    half, most = site["grown_half"], site["grown_most"]
    room = -(-(most if most <= 2 * half else half) // 64) * 64
    return f"reserve:{room}", (
        f"a block grows {steps:.1f} times on average, to {mean:.0f} bytes; half of them to at most "
        f"{half}, nine of ten to {most}, all to {site['grown_final_most']}"), {
            "steps": steps, "final_bytes": mean, "room_bytes": room}


def hand_over(site, whole):
    """The blocks are freed by another thread than the allocating one."""
    if not _often(site, whole) or not _all_end(site, whole) or \
            _of_frees(site, "other_thread") < 0.5:
        return None
    is_fifo = _of_frees(site, "ascending") >= 0.8
    policy = "fifo" if is_fifo else "ring:64"
    order = "in the order of their allocation" if is_fifo else "in no order"
    return policy, (f"{100 * _of_frees(site, 'other_thread'):.0f} % are freed by another thread, "
                    f"{order}"), {"other_thread": _of_frees(site, "other_thread")}


def temporary(site, whole):
    """The blocks are freed by the allocating function, soon afterwards."""
    if not _often(site, whole) or not _all_end(site, whole) or \
            _of_frees(site, "at_once") < MOST:
        return None
    if whole["has_free_stacks"] and _of_frees(site, "same_function") < MOST:
        return None
    return "temporary", (
        f"{100 * _of_frees(site, 'at_once'):.0f} % are freed by the function that allocates them, "
        f"within three calls; at most {site['live_most']} live at a time, {site['size_most']} "
        "bytes at most"), {"at_once": _of_frees(site, "at_once"), "most_bytes": site["size_most"]}


def one_at_a_time(site, whole):
    """There are never two blocks, so the memory of one would suffice."""
    if not _often(site, whole) or not _is_freed(site) or site["live_most"] != 1 or \
            site["other_thread"] or site["size_most"] > LEAST_SHARE * whole["peak_bytes"] + 65536:
        return None
    return "temporary", (
        f"each of the {site['allocations']} is freed before the next one is made; "
        f"{site['size_most']} bytes at most"), {"most_bytes": site["size_most"]}


def scope(site, whole):
    """The blocks are freed while a function that led to the allocation is active, repeatedly."""
    if not whole["has_free_stacks"] or not _often(site, whole) or not _all_end(site, whole) or \
            _of_frees(site, "in_ancestor") < NEARLY_ALL or site["other_thread"] or \
            site["drains"] < ROUNDS:
        return None
    if site["live_bytes_most"] > 0.25 * whole["peak_bytes"] + (1 << 20):
        return None  # a scope releases no memory before its end
    generation = share(site["allocations"], site["drains"])
    if generation > 4096:
        return None
    # A collection that a function changes at each call, with allocations and frees in turn.
    if site["runs"] > 8 * site["drains"]:
        return None
    depth = share(site["ancestor_depth"], site["in_ancestor"])
    return "scope", (
        f"all are freed before a function that led to them returns; {generation:.1f} blocks a call "
        f"of it; {100 * _of_frees(site, 'last_in'):.0f} % last in, first out"), {
            "last_in": _of_frees(site, "last_in"), "generation": generation, "depth": depth}


def fifo(site, whole):
    """The blocks are freed in the order of their allocation, with many waiting."""
    if not _often(site, whole) or not _all_end(site, whole) or site["live_most"] < 32 or \
            site["runs"] < ROUNDS or site["allocations"] < 4 * site["live_most"] or \
            _of_frees(site, "ascending") < MOST or _of_frees(site, "at_once") > 0.5:
        return None
    return "fifo", (
        f"{100 * _of_frees(site, 'ascending'):.0f} % are freed in the order of their allocation, "
        f"at most {site['live_most']} live at a time"), {"ascending": _of_frees(site, "ascending")}


def ring(site, whole):
    """The blocks are allocated together and freed together, while others of the site are live."""
    count = share(site["grouped"], site["groups"])
    if not _often(site, whole) or not _all_end(site, whole) or count < 4 or \
            site["groups"] < ROUNDS or _of_frees(site, "grouped") < MOST or \
            _of_frees(site, "last_in") > 0.5:
        return None
    return f"ring:{round(count)}", (
        f"{100 * _of_frees(site, 'grouped'):.0f} % are freed together with those made next to "
        f"them, {count:.1f} at a time, while up to {site['live_most']} live"), {"group": count}


def pins(site, whole):
    """A few long-lived blocks hold pages of many short-lived ones."""
    if site["pinned_bytes"] < LEAST_SHARE * whole["peak_bytes"] or \
            site["allocated_bytes"] > 0.25 * whole["allocated_bytes"]:
        return None
    return "heap", ("its blocks hold pages that are nearly empty after all others are freed"), {
        "pinned_bytes": site["pinned_bytes"]}


def pool(site, whole):
    """Many blocks of one size in any order. Rarely a gain over a modern heap (Berger 2002)."""
    size, count = max(site["sizes"], key=lambda row: row[1], default=(0, 0))
    if not _often(site, whole) or count < NEARLY_ALL * site["allocations"] or \
            site["live_most"] < 1000 or site["runs"] < ROUNDS or \
            site["allocations"] < 2 * site["live_most"] or not _is_freed(site, 0.5) or \
            size > 4096 or _of_frees(site, "last_in") > 0.5:
        return None
    return f"pool:{size}", (f"{count} blocks of {size} bytes, {site['live_most']} at a time, freed "
                            "in any order"), {"size_bytes": size}


def rounding(site, whole):
    """A substantial part of each block is lost to its size class."""
    whole_bytes = whole["peak_bytes"] + whole["peak_lost_bytes"]
    common = sum(count for _, count in site["sizes"])
    if site["peak_lost"] < LEAST_SHARE * whole_bytes or common < 0.8 * site["allocations"] or \
            site["peak_lost"] < max(0.1 * site["peak_bytes"], PAGE_BYTES):
        return None
    size, _ = max(site["sizes"], key=lambda row: row[1])
    exact = -(-size // 8) * 8
    lost = share(site["peak_lost"], site["peak_live"])
    policy = f"pool:{exact}" if size <= 4096 else None
    return policy, (f"{site['peak_live']} blocks of mostly {size} bytes lose {lost:.0f} bytes each "
                    "to their size class"), {"lost_bytes": site["peak_lost"], "size_bytes": size}


RULES = {"leak": leak, "reserve": reserve, "hand-over": hand_over, "temporary": temporary,
         "one at a time": one_at_a_time,
         "scope": scope, "FIFO": fifo, "ring frame": ring, "pins pages": pins,
         "rounding": rounding, "pool": pool}


def verdicts(whole):
    """Returns the Verdict of each site that has one, those with the most calls first."""
    found = []
    for site in whole["sites"]:
        if site["site"] == 0:
            continue  # blocks without a stack have no place
        is_kept = False
        for kind, rule in RULES.items():
            judged = None if is_kept and kind == "pins pages" else rule(site, whole)
            if judged:
                policy, evidence, numbers = judged
                found.append(Verdict(kind, policy, [site], evidence, numbers))
                if kind != "leak":
                    break
                is_kept = True  # the blocks may be the program's data
    return sorted(found, key=lambda verdict: -verdict.sites[0]["allocations"])


def _chunks(site):
    """Whether the blocks look like requests of the program's own allocator: large, and of few
    sizes."""
    common = sum(count for _, count in site["sizes"])
    return site["live_bytes"] >= CHUNK_LEAST * site["live"] and \
        common >= NEARLY_ALL * site["allocations"]


def merged(found, place):
    """The verdicts, with leaks of one place merged. `place` returns the place of a site."""
    leaks, others = {}, []
    for verdict in found:
        if verdict.kind == "leak":
            leaks.setdefault(place(verdict.sites[0]), []).append(verdict)
        else:
            others.append(verdict)
    for same in leaks.values():
        sites = [site for verdict in same for site in verdict.sites]
        first, live = same[0], sum(verdict.numbers["live_bytes"] for verdict in same)
        ways = f", by {len(sites)} ways that lead here" if len(sites) > 1 else ""
        blocks = f"{sum(site['live'] for site in sites)} of {sum(s['allocations'] for s in sites)}"
        chunks = ("; they look like chunks of an allocator of the program's own: if so, what is "
                  "allocated from them is the place to look" if all(map(_chunks, sites)) else "")
        others.append(Verdict("leak", None, sites, f"{blocks} blocks are never freed, and as many "
                              f"come late in the run as early{ways}{chunks}",
                              {**first.numbers, "live_bytes": live}))
    return others
