"""Merges the profiles of several processes.

A forked process has its parent's code at its parent's addresses, and the samples that were in use
at the fork. These are blocks of the parent and count once. The code of an unrelated process is
moved to addresses that no process has, so that frames of different files remain distinct.
"""

import copy
import dataclasses

from cairn.profile_file import Site, Sums

APART = 1 << 56  # above every address of a process


def is_forked(parent, child):
    """Whether the two processes have their program, and so their stacks, at equal addresses."""
    places = [[(each.start, each.path) for each in profile.maps[:1]] for profile in (parent, child)]
    return bool(places[0]) and places[0] == places[1]


class _Merger:
    def __init__(self, first):
        self.whole = dataclasses.replace(
            first, sites=[], blocks=[], maps=[], modules=[], processes=0)
        self._maps, self._sites, self._blocks = {}, {}, set()

    def _map(self, each, number):
        """The distance to the code in the merged profile."""
        key = (each.start, each.is_module)
        known = self._maps.setdefault(key, each)
        away = 0
        if (known.path, known.build_id, known.offset, known.end) != (
                each.path, each.build_id, each.offset, each.end):
            away = number * APART
            known = dataclasses.replace(each, start=each.start + away, end=each.end + away)
        target = self.whole.modules if each.is_module else self.whole.maps
        if known not in target:
            target.append(known)
        return away

    def add(self, profile, number):
        """Adds the profile with this number."""
        away = {id(each): self._map(each, number)
                for each in (*profile.maps, *profile.modules)}
        moved = {}
        for site in profile.sites:
            moved[site.frames] = tuple(
                frame + (away[id(place)] if (place := profile.map_of(frame - 1)) else 0)
                for frame in site.frames)
        for site in profile.sites:
            mine = self._sites.get(moved[site.frames])
            if mine is None:
                mine = self._sites[moved[site.frames]] = Site(moved[site.frames], Sums(), Sums())
                self.whole.sites.append(mine)
            mine.allocated.add(site.allocated)
            mine.live.add(site.live)
        for block in profile.blocks:
            frames = moved.get(block.frames, block.frames)
            key = (block.address, block.time_ms, block.thread, block.asked, frames)
            if key in self._blocks:  # a block of the parent, at the fork
                if frames in self._sites:
                    self._sites[frames].live.add(Sums(1, block.objects, block.bytes), -1)
                continue
            self._blocks.add(key)
            self.whole.blocks.append(dataclasses.replace(block, frames=frames))
        self._count(profile)

    def _count(self, profile):
        whole = self.whole
        if whole.processes:
            for name in ("lost_stacks", "lost_blocks", "torn", "unreadable"):
                setattr(whole, name, getattr(whole, name) + getattr(profile, name))
            whole.is_whole = whole.is_whole and profile.is_whole
            whole.folders = tuple(dict.fromkeys((*whole.folders, *profile.folders)))
        whole.processes += profile.processes


def merged(profiles):
    """The sum of the profiles, named like the first."""
    if len(profiles) == 1:
        return profiles[0]
    merger = _Merger(copy.copy(profiles[0]))
    for number, profile in enumerate(profiles):
        merger.add(profile, number)
    return merger.whole


def newest(profiles):
    """The latest profile of each process. The longest truncated one of a process counts if it has
    no other."""
    found, cut = {}, {}
    for profile in profiles:
        if profile.is_whole or profile.unreadable:
            key = (profile.pid, profile.program, profile.maps[0].start if profile.maps else 0)
            if key not in found or found[key].time_ms <= profile.time_ms:
                found[key] = profile
        elif profile.pid not in cut or cut[profile.pid].lines <= profile.lines:
            cut[profile.pid] = profile
    whole = {profile.pid for profile in found.values()}
    return [*found.values(), *(cut[pid] for pid in cut if pid not in whole)]
