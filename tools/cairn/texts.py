"""Formats figures and targets, for all commands that read a heap from outside."""

HARDENING = {0: "", 1: " (light hardening)", 2: " (hardened)"}
STATES = {"R": "running", "S": "asleep", "D": "asleep", "T": "stopped", "t": "stopped",
          "Z": "ended"}


def bytes_text(size):
    """A number of bytes in at most 9 characters."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return ""


def share(part, whole):
    return f"{100 * part / whole:.0f} %" if whole else "-"


def target_text(target):
    """The sentence that identifies the target."""
    program = f" ({target['program']})" if target["program"] else ""
    if target["kind"] == "process":
        what = f"process {target['pid']}{program}, {STATES.get(target['state'], 'running')}"
    else:
        what = f"core file{program}"
    return f"{what}: Cairn {target['version']}{HARDENING.get(target['hardening'], '')}"
