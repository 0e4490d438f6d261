"""The parts of an ELF file that a profile needs: its build id, and functions by address."""

import bisect
import struct

GNU_BUILD_ID = ("GNU", 3)
NOTE_SEGMENT = 4
SYMBOL_TABLE, DYNAMIC_SYMBOLS, LOAD_SEGMENT = 2, 11, 1
FUNCTION, INDIRECT_FUNCTION = 2, 10


def notes_in(data):
    """(name, number), contents of each note of a segment, up to the first damaged one."""
    at = 0
    while at + 12 <= len(data):
        name_bytes, text_bytes, kind = struct.unpack_from("<3I", data, at)
        text = at + 12 + (name_bytes + 3) // 4 * 4
        name = data[at + 12:at + 12 + name_bytes].rstrip(b"\0").decode(errors="surrogateescape")
        if text + text_bytes <= len(data):
            yield (name, kind), data[text:text + text_bytes]
        at = text + (text_bytes + 3) // 4 * 4


def _name(strings, at):
    return strings[at:strings.index(b"\0", at)].decode(errors="surrogateescape")


class Elf:
    """A 64-bit little-endian ELF file, read into memory. Raises ValueError for other or damaged
    files."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            self._bytes = file.read()
        if self._bytes[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a 64-bit ELF file")
        try:
            self._read_heads()
            self.build_id = self._find_build_id()
            self._read_functions()
        except (struct.error, IndexError) as error:
            raise ValueError("damaged") from error
        del self._bytes

    def _read_heads(self):
        (head_at, section_at, _, _, head_bytes, heads, section_bytes, sections,
         _) = struct.unpack_from("<QQIHHHHHH", self._bytes, 0x20)
        self._heads = [struct.unpack_from("<IIQQQQQQ", self._bytes, head_at + i * head_bytes)
                       for i in range(heads)]
        self._sections = [struct.unpack_from("<IIQQQQIIQQ", self._bytes,
                                             section_at + i * section_bytes)
                          for i in range(sections)] if section_at else []
        names = (self._sections[struct.unpack_from("<H", self._bytes, 0x3e)[0]]
                 if self._sections else None)
        text = self._bytes[names[4]:names[4] + names[5]] if names else b""
        self.section_names = {_name(text, section[0]) for section in self._sections if text}
        self._loads = [(offset, size, address) for kind, _, offset, address, _, size, _, _
                       in self._heads if kind == LOAD_SEGMENT]

    def _find_build_id(self):
        for kind, _, offset, _, _, size, _, _ in self._heads:
            if kind == NOTE_SEGMENT:
                found = dict(notes_in(self._bytes[offset:offset + size]))
                if found.get(GNU_BUILD_ID):
                    return found[GNU_BUILD_ID].hex()
        return ""

    def _read_functions(self):
        functions = {}
        for wanted in (DYNAMIC_SYMBOLS, SYMBOL_TABLE):  # the latter is complete and wins
            for _, kind, _, _, offset, size, link, _, _, entry_bytes in self._sections:
                if kind != wanted or not entry_bytes:
                    continue
                strings = self._sections[link]
                text = self._bytes[strings[4]:strings[4] + strings[5]]
                for name, info, _, section, value, length in struct.iter_unpack(
                        "<IBBHQQ", self._bytes[offset:offset + size // 24 * 24]):
                    if info & 15 in (FUNCTION, INDIRECT_FUNCTION) and section and value:
                        functions[value] = (length, _name(text, name))
        self._starts = sorted(functions)
        self._functions = functions

    @property
    def has_lines(self):
        return bool({".debug_info", ".zdebug_info"} & self.section_names)

    def address_of_offset(self, offset):
        """The address for an offset in the file; None when it is not loaded."""
        for start, size, address in self._loads:
            if start <= offset < start + size:
                return offset - start + address
        return None

    def function_of(self, address):
        """The name of the function at the address; None when no symbol covers it."""
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        start = self._starts[at]
        length, name = self._functions[start]
        return name if address < start + length or length == 0 else None
