"""The notes of an ELF file, of which little is read: who built it, and whether Cairn is in it.

src/base/layout.h has Cairn's note: each of its libraries carries it, and so does a program that
Cairn was linked into.
"""

import struct

HEAD_BYTES = 64
NOTE_SEGMENT = 4
NOTES_BYTES_MOST = 64 << 10
HEADS_MOST = 256
GNU_BUILD_ID = ("GNU", 3)
CAIRN_LAYOUT = ("Cairn", 1)


def notes_in(data):
    """(name, number), contents of each note of a segment; stops where it is damaged."""
    at = 0
    while at + 12 <= len(data):
        name_bytes, text_bytes, kind = struct.unpack_from("<3I", data, at)
        text = at + 12 + (name_bytes + 3) // 4 * 4
        name = data[at + 12:at + 12 + name_bytes].rstrip(b"\0").decode(errors="backslashreplace")
        if text + text_bytes <= len(data):
            yield (name, kind), data[text:text + text_bytes]
        at = text + (text_bytes + 3) // 4 * 4


def read_notes(file):
    """{(name, number): contents} of an open file; empty where it is no 64-bit ELF file."""
    head = file.read(HEAD_BYTES)
    if len(head) < HEAD_BYTES or head[:6] != b"\x7fELF\x02\x01":
        return {}
    segments_at, = struct.unpack_from("<Q", head, 0x20)
    segment_bytes, segments = struct.unpack_from("<HH", head, 0x36)
    if segment_bytes < 56:
        return {}
    found = {}
    for number in range(min(segments, HEADS_MOST)):
        file.seek(segments_at + number * segment_bytes)
        segment = file.read(56)
        if len(segment) < 56:
            break
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", segment)
        if kind == NOTE_SEGMENT and size <= NOTES_BYTES_MOST:
            file.seek(offset)
            found.update(notes_in(file.read(size)))
    return found
