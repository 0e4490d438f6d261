"""The output of `cairn profile`: short names, the frames up to the program's own, standard errors,
the width of the terminal, and several processes as one."""

import io
import pathlib
import unittest
from unittest import mock

import tool_path  # pylint: disable=unused-import
from rich.table import Table
from cairn import console, profile_diff, profile_file, profile_merge, profile_names, profile_report
from cairn.profile_file import Block, Map, Profile, Site, Sums
from cairn.profile_symbols import Frame

MIB = 1 << 20
PROGRAM, LIBRARY = "/opt/shop/shop", "/usr/lib/x86_64-linux-gnu/libperl.so.5.36"
LIBC, PLUGIN = "/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/shop/plugin.so"
STRING = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"
NAMES = {
    "void std::vector<int, std::allocator<int> >::_M_realloc_insert<int const&>(__gnu_cxx::"
    "__normal_iterator<int*, std::vector<int, std::allocator<int> > >, int const&)":
        "std::vector<…>::_M_realloc_insert",
    f"{STRING}::basic_string(char const*, int)": "std::string::basic_string",
    f"{STRING} std::operator+<char>(char const*, {STRING} const&)": "std::operator+",
    "main::{lambda(int)#1}::operator()(int) const": "main::{lambda#1}::operator()",
    "void* operator new[](unsigned long)": "operator new[]",
    "std::ostream& std::operator<< <std::char_traits<char> >(std::ostream&, char const*)":
        "std::operator<<",
    "(anonymous namespace)::f(int (*)(char))": "(anonymous)::f",
    "Foo::operator std::string() const": "Foo::operator std::string",
    "Foo::operator->() const": "Foo::operator->",
    "bool operator< <int>(int)": "operator<",
    "<alloc::vec::Vec<T,A> as core::iter::Extend<T>>::extend":
        "<alloc::vec::Vec<…> as core::iter::Extend<…>>::extend",
    "alloc::vec::Vec<T>::push": "alloc::vec::Vec<…>::push",
    "std::map<int, void (*)(std::vector<int>)>::operator[](int const&)": "std::map<…>::operator[]",
    "f(int) [clone .isra.0]": "f",
    "libshop.so (deleted)+0x1234": "libshop.so (deleted)+0x1234",
    "(no stack)": "(no stack)",
    "new_entry": "new_entry",
}


def frame(function, path=PROGRAM, file="", line=0):
    return Frame(function, file, line, path)


def std(function):
    return frame(function, PROGRAM, "/usr/include/c++/12/bits/stl_vector.h", 1287)


class FormatTest(unittest.TestCase):
    # docs/dev/COMPATIBILITY.md promises that every version 1.x reads this file of 1.0.0.
    def test_a_dump_of_version_1_0(self):
        dump = profile_file.read(pathlib.Path(__file__).with_name("profile-1.dump"))
        self.assertTrue(dump.is_whole)
        self.assertEqual((dump.version, dump.program, dump.interval), ("1.0.0", "sort", 16384))
        self.assertEqual((dump.sum(True).bytes, dump.sum(False).bytes), (16400, 411749))
        site = dump.sites[0]
        self.assertEqual((len(site.frames), site.live.objects), (9, 33587211 / 65536))
        self.assertEqual([block.frames for block in dump.blocks], [site.frames])
        self.assertEqual(dump.map_of(site.frames[5]).path, "/usr/bin/sort")


class NamesTest(unittest.TestCase):
    def test_short_names(self):
        for name, short in NAMES.items():
            with self.subTest(name):
                self.assertEqual(profile_names.short_name(name), short)

    def test_a_name_that_is_too_long_keeps_its_end_and_its_place(self):
        long = frame("shop::orders::Table::add(int)", file="/src/table.cc", line=16)
        self.assertEqual(profile_names.fitted(long, 80), "shop::orders::Table::add table.cc:16")
        self.assertEqual(profile_names.fitted(long, 30), "…::Table::add table.cc:16")
        for room in range(12, 40):
            self.assertLessEqual(len(profile_names.fitted(long, room)), room)

    def test_the_standard_library_is_one_line_and_the_program_follows(self):
        stack = [std("std::__new_allocator<int>::allocate(unsigned long, void const*)"),
                 std("std::_Vector_base<int, std::allocator<int> >::_M_allocate(unsigned long)"),
                 std("std::vector<int>::push_back(int const&)"),
                 *[frame(f"own_{i}", file="/src/own.cc", line=i) for i in range(5)]]
        self.assertEqual(profile_names.lines(stack, None, None),
                         ["std::vector<…>::push_back", "own_0", "own_1 own.cc:1", "own_2 own.cc:2",
                          "… 2 more"])
        self.assertEqual(profile_names.lines(stack, 1, None), ["std::__new_allocator<…>::allocate",
                                                               "… 7 more"])

    def test_two_own_frames_are_shown_however_deep_they_lie(self):
        deep = [frame(f"lib_{i}", LIBRARY) for i in range(30)]
        stack = [frame("strdup", LIBC), *deep, frame("plug", PLUGIN), frame("main"),
                 frame("__libc_start_call_main", LIBC), frame("_start")]
        self.assertEqual(profile_names.lines(stack, None, None),
                         ["strdup", "lib_0", "… 28 more of libperl.so.5.36", "lib_29", "plug",
                          "main"])

    def test_a_stack_without_own_frames(self):
        stack = [frame(f"lib_{i}", LIBRARY) for i in range(9)]
        self.assertEqual(profile_names.lines(stack, None, None),
                         ["lib_0", "lib_1", "lib_2", "lib_3", "… 5 more"])
        self.assertEqual(profile_names.lines([Frame("(no stack)")], None, None), ["(no stack)"])


class Named:
    """A symbol table in which each address is a function."""

    remarks = ()

    def __init__(self, *_):
        pass

    def stack(self, frames):
        return [frame(f"shop::Table<{number}, int>::function_with_the_long_name_{number}(int)",
                      file="/src/table.cc", line=number) for number in frames]


def profile(sites, **values):
    """A profile from {frames: (samples, objects, bytes)}, with all blocks in use."""
    return Profile("", version="1", pid=7, program="shop", reason="end", interval=512 << 10,
                   is_whole=True, maps=[Map(0, 1 << 40, 0, "", PROGRAM)],
                   sites=[Site(frames, Sums(*sums), Sums(*sums))
                          for frames, sums in sites.items()], **values)


def printed(columns, function, *arguments):
    text = io.StringIO()
    before, console.out.width, console.out.file = console.out.width, columns or 1 << 14, text
    try:
        with mock.patch.object(console, "_columns_known", columns is not None):
            function(*arguments)
    finally:
        console.out.width, console.out.file = before, None
    return text.getvalue()


class ReportTest(unittest.TestCase):
    sites = {(1, 2, 3): (400, 40000., 100 * MIB), (4, 5): (25, 25000., 6 * MIB),
             (6,): (10, 10., 10 * MIB), (7, 8): (1, 8000., MIB // 2)}

    def show(self, columns, sites=None):
        return printed(columns, profile_report.print_top, profile(sites or self.sites), Named(),
                       True, 20, None)

    def test_standard_errors(self):
        text = self.show(None)
        self.assertRegex(text, r"(?m)^100\.0 MiB +±5 % +86 % +40000 +shop::Table<…>::function_with")
        self.assertRegex(text, r"(?m)^ +6\.0 MiB +±20 % +5 % ")
        self.assertRegex(text, r"(?m)^ *10\.0 MiB +±0 % ", "all of its blocks are samples")
        self.assertRegex(text, r"(?m)^512\.0 KiB +±100 % ")

    def test_no_line_is_wider_than_the_terminal(self):
        for columns in (132, 100, 80, 60, 40):
            lines = self.show(columns).splitlines()
            table = lines[lines.index("") + 1:]
            self.assertLessEqual(max(map(len, table)), columns)
            self.assertTrue(any("long_name_6" in line for line in table))

    def test_piped_lines_are_whole_and_end_with_no_blank(self):
        text = self.show(None)
        self.assertIn("shop::Table<…>::function_with_the_long_name_3 table.cc:3\n", text)
        self.assertNotRegex(text, r"(?m)[ \t]$")

    def test_too_few_samples_name_an_interval(self):
        few = {(1, 2): (4, 4000., 2 * MIB)}
        self.assertIn("4 samples are too few to compare sites: an interval of 4K gives about 512 "
                      "(--interval 4K, or profile:4K in CAIRN_OPTIONS)", self.show(None, few))
        self.assertNotIn("too few", self.show(None))


class NarrowTest(unittest.TestCase):
    def test_figures_are_not_cut_in_a_narrow_terminal(self):
        text = io.StringIO()
        # pylint: disable=protected-access
        narrow = console._Out(file=text, force_terminal=True, width=12, color_system=None)
        table = Table(box=None, pad_edge=False)
        for name in ("live bytes", "slab bytes"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_row("11.8 MiB", "250.0 KiB")
        narrow.print(table)
        self.assertIn("11.8 MiB   250.0 KiB", text.getvalue())


def block(address, site, weight, time_ms=1):
    return Block(address, site, 100, weight / 100, weight, 7, time_ms)


class DiffTest(unittest.TestCase):
    def diff(self, before, after, live=True):
        with mock.patch.object(profile_diff, "Symbols", Named):
            return profile_diff.differences(before, after, live)

    def test_a_change_within_the_noise_is_marked(self):
        before = profile({(1,): (16, 16000., 16 * MIB), (2,): (100, 1e6, 100 * MIB)}, lost_blocks=1)
        after = profile({(1,): (18, 18000., 18 * MIB), (2,): (200, 2e6, 200 * MIB)}, lost_blocks=1)
        after.pid = 8
        rows = self.diff(before, after)
        self.assertEqual([row.is_noise for row in rows], [False, True])
        self.assertEqual([row.bytes for row in rows], [100 * MIB, 2 * MIB])
        self.assertAlmostEqual(rows[1].error, (16 * MIB * MIB + 18 * MIB * MIB) ** .5, delta=MIB)
        text = printed(80, profile_diff.print_differences, before, after, rows, 20, None)
        self.assertRegex(text, r"(?m)^\+100\.0 ± 17\.\d MiB +100\.0 MiB +200\.0 MiB")
        self.assertRegex(text, r"(?s)\+100\.0 ±.*\nWithin the noise: .*\n *\+2\.0 ± 5\.\d MiB")
        self.assertLessEqual(max(map(len, text.splitlines()[4:])), 100)

    def test_samples_of_both_cancel_out(self):
        both = [block(1000 + i, (1,), MIB) for i in range(16)]
        before = profile({(1,): (16, 160000., 16 * MIB)}, blocks=both)
        after = profile({(1,): (17, 170000., 17 * MIB)}, blocks=[*both, block(5, (1,), MIB)])
        row, = self.diff(before, after)
        self.assertAlmostEqual(row.error, MIB, delta=MIB / 10)

    def test_of_one_process_allocations_since_then_are_what_is_estimated(self):
        before = profile({(1,): (100, 1e5, 100 * MIB)}, time_ms=1)
        after = profile({(1,): (104, 1.04e5, 104 * MIB)}, time_ms=2)
        row, = self.diff(before, after, live=False)
        self.assertAlmostEqual(row.error, 2 * MIB, delta=MIB / 10)
        after.pid = 8
        row, = self.diff(before, after, live=False)
        self.assertGreater(row.error, 10 * MIB)


class MergeTest(unittest.TestCase):
    def test_blocks_of_the_parent_count_once(self):
        shared = [block(100, (1,), MIB), block(200, (1,), MIB)]
        parent = profile({(1,): (2, 2e4, 2 * MIB)}, blocks=shared)
        child = profile({(1,): (3, 3e4, 3 * MIB), (2,): (1, 1e4, MIB)},
                        blocks=[*shared, block(300, (1,), MIB), block(400, (2,), MIB)])
        child.pid = 8
        self.assertTrue(profile_merge.is_forked(parent, child))
        whole = profile_merge.merged([parent, child])
        live = {site.frames: site.live.bytes for site in whole.sites}
        self.assertEqual(live, {(1,): 3 * MIB, (2,): MIB})
        self.assertEqual((whole.processes, len(whole.blocks)), (2, 4))

    def test_other_programs_at_the_same_addresses_stay_apart(self):
        one, other = profile({(1,): (1, 1., MIB)}), profile({(1,): (1, 1., MIB)})
        other.maps = [Map(0, 1 << 40, 0, "", "/bin/other")]
        self.assertFalse(profile_merge.is_forked(one, other))
        whole = profile_merge.merged([one, other])
        self.assertEqual(len(whole.sites), 2)
        paths = {whole.map_of(site.frames[0] - 1).path for site in whole.sites}
        self.assertEqual(paths, {PROGRAM, "/bin/other"})

    def test_of_a_process_the_last_counts(self):
        early, late = profile({}, time_ms=1), profile({}, time_ms=2)
        self.assertEqual(profile_merge.newest([late, early]), [late])


if __name__ == "__main__":
    unittest.main()
