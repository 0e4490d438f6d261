"""The lost blocks of a process as one HTML file."""

from cairn import html_page
from cairn.inspect_command import bytes_text, target_text

LEAKS_MOST = 5000  # those first that hold most


def page(lost, contents):
    """The text of the file; `contents` says how a block begins."""
    sums = lost.sums
    shown = sorted(lost.leaks, key=lambda row: -row["size_bytes"] - row["held_bytes"])[:LEAKS_MOST]
    blocks = sums["direct_blocks"] + sums["held_blocks"]
    sentences = [target_text(lost.target), *lost.remarks(),
                 f"{blocks} of {sums['live_blocks']} blocks are lost, no pointer leads to them: "
                 f"{bytes_text(sums['direct_bytes'] + sums['held_bytes'])}."]
    if len(shown) < sums["direct_blocks"]:
        sentences.append(f"Of {sums['direct_blocks']} lost directly, the {len(shown)} are shown "
                         "that hold most.")
    data = {"sums": sums,
            "sizes": [[row["size_bytes"], row["blocks"], row["direct"]] for row in lost.sizes],
            "leaks": [[f"{row['address']:#x}", row["size_bytes"], row["held_bytes"],
                       row["held_blocks"], contents(row), row.get("points_to", "")]
                      for row in shown]}
    return html_page.page(
        f"{lost.target['program'] or 'core file'}: lost blocks", sentences, data,
        ("table.js", "treemap.js", "leaks.js"),
        "Arrow keys go from part to part, Enter goes in, Escape back to all of it; / searches.",
        "search: an address, a text (/)")
