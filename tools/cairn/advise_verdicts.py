"""What the sums of a site mean: the rules of `cairn advise`.

A verdict is a guess by evidence until a replay has measured it. Each rule takes a site's sums and
the program's, and gives the policy that a replay is to use, or None. The first rule that fits wins;
beside a leak there may be another one, since what is kept to the end may be the program's data.
"""

import dataclasses
from typing import Dict, List, Optional

LEAST_SHARE = 0.03  # of the program's events or memory: what is less is not worth a look
NEARLY_ALL = 0.95
MOST = 0.9
ROUNDS = 32  # what happened seldom may have happened by chance
CHUNK_LEAST = 1024  # bytes of what an allocator asks for and hands out in parts


@dataclasses.dataclass
class Verdict:
    """What a site would gain from, as far as its evidence goes."""

    kind: str
    policy: Optional[str]  # of a replay; None where there is nothing to replay
    sites: List[Dict]
    evidence: str
    numbers: Dict


def share(part, whole):
    return part / whole if whole else 0.0


def _often(site, whole):
    """Whether the site makes enough of the program's calls that their time could matter."""
    return share(site["allocations"] + site["frees"] + site["resizes"],
                 whole["events"]) >= LEAST_SHARE


def _is_freed(site, part=NEARLY_ALL):
    return site["frees"] >= part * site["allocations"]


def _of_frees(site, name):
    return share(site[name], site["frees"])


def allocated_at(points, values, part):
    """A site's bytes allocated when the program had allocated this part of all."""
    wanted, before = part * points[-1][2], (0, 0)
    for point, value in zip(points, values):
        if point[2] >= wanted:
            step = point[2] - before[0]
            return before[1] + (value - before[1]) * share(wanted - before[0], step)
        before = point[2], value
    return before[1]


def leak(site, whole):
    """Grows over the whole run and is never freed."""
    if site["allocations"] < 64 or site["live"] < MOST * site["allocations"] or \
            site["live_bytes"] < LEAST_SHARE * whole["peak_bytes"]:
        return None
    marks = [allocated_at(whole["points"], site["points_allocated"], quarter / 4)
             for quarter in range(5)]
    grown = [share(later - earlier, marks[-1]) for earlier, later in zip(marks, marks[1:])]
    if min(grown[1:]) < 0.1:  # what else the start allocates hides the first quarter
        return None
    return None, "never freed", {"live_bytes": site["live_bytes"]}


def reserve(site, whole):
    """Blocks that grow step by step."""
    if site["grown_blocks"] < 0.5 * site["allocations"] or site["grown_blocks"] < 8 or not (
            _often(site, whole) or
            site["copied_bytes"] >= LEAST_SHARE * whole["allocated_bytes"]):
        return None
    steps = share(site["grown_steps"], site["grown_blocks"])
    mean = share(site["grown_final_bytes"], site["grown_blocks"])
    # What nine of ten reach; where half of them stay far below, what these reach.
    half, most = site["grown_half"], site["grown_most"]
    room = -(-(most if most <= 2 * half else half) // 64) * 64
    return f"reserve:{room}", (
        f"a block grows {steps:.1f} times on average, to {mean:.0f} bytes; half of them to at most "
        f"{half}, nine of ten to {most}, all to {site['grown_final_most']}"), {
            "steps": steps, "final_bytes": mean, "room_bytes": room}


def hand_over(site, whole):
    """Freed by another thread than made it."""
    if not _often(site, whole) or _of_frees(site, "other_thread") < 0.5:
        return None
    is_fifo = _of_frees(site, "ascending") >= 0.8
    policy = "fifo" if is_fifo else "ring:64"
    order = "in the order of their making" if is_fifo else "in no order"
    return policy, (f"{100 * _of_frees(site, 'other_thread'):.0f} % are freed by another thread, "
                    f"{order}"), {"other_thread": _of_frees(site, "other_thread")}


def temporary(site, whole):
    """Ends where it was made, at once."""
    if not _often(site, whole) or not _is_freed(site) or _of_frees(site, "at_once") < MOST:
        return None
    if whole["has_free_stacks"] and _of_frees(site, "same_function") < MOST:
        return None
    return "temporary", (
        f"{100 * _of_frees(site, 'at_once'):.0f} % are freed by the function that made them, "
        f"within three calls; at most {site['live_most']} live at a time, {site['size_most']} "
        "bytes at most"), {"at_once": _of_frees(site, "at_once"), "most_bytes": site["size_most"]}


def one_at_a_time(site, whole):
    """Never two of them: the memory of one would do for all."""
    if not _often(site, whole) or not _is_freed(site) or site["live_most"] != 1 or \
            site["other_thread"] or site["size_most"] > LEAST_SHARE * whole["peak_bytes"] + 65536:
        return None
    return "temporary", (
        f"each of the {site['allocations']} is freed before the next one is made; "
        f"{site['size_most']} bytes at most"), {"most_bytes": site["size_most"]}


def scope(site, whole):
    """Freed while a function that led to the allocation is active, again and again."""
    if not whole["has_free_stacks"] or not _often(site, whole) or not _is_freed(site) or \
            _of_frees(site, "in_ancestor") < NEARLY_ALL or site["other_thread"] or \
            site["drains"] < ROUNDS:
        return None
    if site["live_bytes_most"] > 0.25 * whole["peak_bytes"] + (1 << 20):
        return None  # a scope gives nothing back before its end
    generation = share(site["allocations"], site["drains"])
    if generation > 4096:
        return None
    # A pile that a function works on at each call: it takes and gives back by turns.
    if site["runs"] > 8 * site["drains"]:
        return None
    depth = share(site["ancestor_depth"], site["in_ancestor"])
    return "scope", (
        f"all end before a function that led to them returns; {generation:.1f} blocks a call of "
        f"it; {100 * _of_frees(site, 'last_in'):.0f} % last in, first out"), {
            "last_in": _of_frees(site, "last_in"), "generation": generation, "depth": depth}


def fifo(site, whole):
    """Freed in the order in which they were made, with many waiting."""
    if not _often(site, whole) or not _is_freed(site, 0.8) or site["live_most"] < 32 or \
            site["runs"] < ROUNDS or site["allocations"] < 4 * site["live_most"] or \
            _of_frees(site, "ascending") < MOST or _of_frees(site, "at_once") > 0.5:
        return None
    return "fifo", (
        f"{100 * _of_frees(site, 'ascending'):.0f} % are freed in the order of their making, at "
        f"most {site['live_most']} live at a time"), {"ascending": _of_frees(site, "ascending")}


def ring(site, whole):
    """Made together and freed together, while others of the kind live."""
    count = share(site["grouped"], site["groups"])
    if not _often(site, whole) or not _is_freed(site, 0.8) or count < 4 or \
            site["groups"] < ROUNDS or _of_frees(site, "grouped") < MOST or \
            _of_frees(site, "last_in") > 0.5:
        return None
    return f"ring:{round(count)}", (
        f"{100 * _of_frees(site, 'grouped'):.0f} % are freed together with those made beside them, "
        f"{count:.1f} at a time, while up to {site['live_most']} live"), {"group": count}


def pins(site, whole):
    """Few long-lived blocks hold pages of many short-lived ones."""
    if site["pinned_bytes"] < LEAST_SHARE * whole["peak_bytes"] or \
            site["allocated_bytes"] > 0.25 * whole["allocated_bytes"]:
        return None
    return "heap", ("when all else has ended, its blocks hold pages that are nearly empty"), {
        "pinned_bytes": site["pinned_bytes"]}


def pool(site, whole):
    """Many of one size in any order. Seldom a gain beside a modern heap (Berger 2002)."""
    size, count = max(site["sizes"], key=lambda row: row[1], default=(0, 0))
    if not _often(site, whole) or count < NEARLY_ALL * site["allocations"] or \
            site["live_most"] < 1000 or site["runs"] < ROUNDS or \
            site["allocations"] < 2 * site["live_most"] or not _is_freed(site, 0.5) or \
            size > 4096 or _of_frees(site, "last_in") > 0.5:
        return None
    return f"pool:{size}", (f"{count} blocks of {size} bytes, {site['live_most']} at a time, freed "
                            "in any order"), {"size_bytes": size}


def rounding(site, whole):
    """A good part of each block is lost to its size class."""
    whole_bytes = whole["peak_bytes"] + whole["peak_lost_bytes"]
    common = sum(count for _, count in site["sizes"])
    if site["peak_lost"] < LEAST_SHARE * whole_bytes or common < 0.8 * site["allocations"] or \
            site["peak_lost"] < 0.1 * site["peak_bytes"]:
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
    """The Verdict of each site that has one, those of the most calls first."""
    found = []
    for site in whole["sites"]:
        if site["site"] == 0:
            continue  # blocks without a stack are of no place
        is_kept = False
        for kind, rule in RULES.items():
            judged = None if is_kept and kind == "pins pages" else rule(site, whole)
            if judged:
                policy, evidence, numbers = judged
                found.append(Verdict(kind, policy, [site], evidence, numbers))
                if kind != "leak":
                    break
                is_kept = True  # it may be what the program is for: its data
    return sorted(found, key=lambda verdict: -verdict.sites[0]["allocations"])


def _chunks(site):
    """Whether the blocks are such as an allocator of the program's own asks for: large, and of the
    same few sizes."""
    common = sum(count for _, count in site["sizes"])
    return site["live_bytes"] >= CHUNK_LEAST * site["live"] and \
        common >= NEARLY_ALL * site["allocations"]


def merged(found, place):
    """The verdicts, leaks of one place as one: `place` is of a site."""
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
