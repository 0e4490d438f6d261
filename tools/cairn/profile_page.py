"""A profile as one HTML file: flame graph, table and search, without a request to anywhere."""

from cairn import html_page
from cairn.inspect_command import bytes_text
from cairn.profile_report import opening, remarks

LEAST_SHARE = 1 / 20000  # of all bytes; smaller frames are left out, or pages grow without end


def _node(name):
    # name, bytes in use, bytes allocated, blocks in use, blocks allocated, children by name
    return [name, 0, 0, 0, 0, {}]


def _add(node, site):
    node[1] += site.live.bytes
    node[2] += site.allocated.bytes
    node[3] += site.live.objects
    node[4] += site.allocated.objects


def _shown(node, least, names):
    children = sorted(node[5].values(), key=lambda child: (-child[1], -child[2], child[0]))
    return [names.setdefault(node[0], len(names)), node[1], node[2], round(node[3]), round(node[4]),
            [_shown(child, least, names) for child in children
             if child[1] >= least[0] or child[2] >= least[1]]]


def tree(profile, symbols):
    """{"names": …, "root": [name, in use, allocated, blocks in use, blocks allocated, children]}"""
    root = _node("all")
    for site in profile.sites:
        _add(root, site)
        node = root
        for frame in reversed(symbols.stack(site.frames)):
            node = node[5].setdefault(str(frame), _node(str(frame)))
            _add(node, site)
    names = {}
    least = (max(1, root[1] * LEAST_SHARE), max(1, root[2] * LEAST_SHARE))
    shown = _shown(root, least, names)
    return {"names": list(names), "root": shown}


def page(profile, symbols):
    """The text of the file."""
    sentences = (
        opening(profile),
        f"in use {bytes_text(profile.sum(True).bytes)}, allocated "
        f"{bytes_text(profile.sum(False).bytes)}, {profile.sum(False).samples} samples",
        *remarks(profile, symbols))
    return html_page.page(f"{profile.program}: heap profile", sentences, tree(profile, symbols),
                          ("flame.js", "table.js", "profile.js"),
                          "Arrow keys go from frame to frame, Enter zooms in, Escape goes back.")
