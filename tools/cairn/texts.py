"""Formats figures, targets and names, for all commands.

A name whose bytes are not UTF-8 is read with "surrogateescape", which keeps the bytes for the
system's calls, and is shown as name\\xff: by the streams and files that write with ESCAPED, and by
json_text."""

import codecs
import json

ESCAPED = "cairn-escaped"

HARDENING = {0: "", 1: " (light hardening)", 2: " (hardened)"}
STATES = {"R": "running", "S": "asleep", "D": "asleep", "T": "stopped", "t": "stopped",
          "Z": "ended"}


def _escape(error):
    """Writes the bytes of a name as \\xff, and characters that the encoding lacks as \\u2026."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start:error.end]
    shown = "".join(f"\\x{ord(sign) - 0xdc00:02x}" if "\udc80" <= sign <= "\udcff" else
                    sign.encode("ascii", "backslashreplace").decode("ascii") for sign in text)
    return shown, error.end


codecs.register_error(ESCAPED, _escape)


def readable(value):
    """The value with all its texts as they are shown."""
    if isinstance(value, str):
        return value.encode("utf-8", ESCAPED).decode("utf-8")
    if isinstance(value, dict):
        return {readable(name): readable(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [readable(each) for each in value]
    return value


def json_text(value, **options):
    """The value as JSON."""
    text = json.dumps(value, **options)
    return json.dumps(readable(value), **options) if "\\udc" in text else text


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
        what = f"process {target['pid']}{program}, " \
               f"{target.get('end') or STATES.get(target['state'], 'running')}"
    else:
        what = f"core file{program}"
    return f"{what}: Cairn {target['version']}{HARDENING.get(target['hardening'], '')}"
