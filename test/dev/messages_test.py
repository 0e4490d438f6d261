"""The form of all messages of the library and of the tools, collected from their sources.

A message is one sentence without a full stop. It begins with a lower-case letter or with the name
of its object, names that object, gives an error by its name instead of a number, and has no word
that dev/check_prose.py refuses. A help text is a sentence with a full stop.
"""

import ast
import io
import pathlib
import re
import tempfile
import tokenize
import unittest

import dev_path  # noqa: F401
from check_docs import arguments, literal_groups, printed_lines, without_comments
from check_prose import check_words

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The functions of the tools in C that print a message, and which of their arguments it is.
C_PRINTING = {"fail": 0, "player_fail": 0, "sentence": 0, "give_up": 0, "player_damaged": 1,
              "refuse": 1, "damaged": 1, "fprintf": 1, "fputs": 0}
# Those that take a reason, and put the path of the file before it; in persist/ `fail` does so too.
REASONS = ("sentence", "give_up", "player_damaged", "refuse", "damaged")
C_CALL = re.compile(rf"\b({'|'.join(C_PRINTING)})\(")
PYTHON_PRINTING = ("UserError", "Damage", "note")
# Names that a message may begin with: an allocator, a function, C++.
NAME_FIRST = re.compile(r"[A-Z]{2,}|[%{a-z\d-]")
# An object: a value, an option, or the subject before a colon.
OBJECT = re.compile(r"%[a-z.]|\{|--[a-z]|^[^:]+: |\bits\b|\bthe (?:output|program|command)\b")
# Headers for C++ print these where no name or pointer is known.
ALONE = ("out of memory in a program without exceptions",
         "an allocator's persistent heap is not open")
# A value's place in an f-string. rich fills in its own.
FILLED = re.compile(r"(?i)(?:f|rf|fr)['\"]|\"\"\"")
PLACEHOLDER = re.compile(r"(?<![${])\{(?!task\.)([a-z_]\w*)(?:[.\[(:][^{}]*)?\}")
NUMBERED_ERROR = re.compile(r"\berror (?:%|\{|\d)|%d\b.*errno|errno %")


def texts_of(node):
    """The texts that an expression of Python can have, with {} for values; [] when unknown."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        return ["".join(part.value if isinstance(part, ast.Constant) else "{}"
                        for part in node.values)]
    if isinstance(node, ast.IfExp):
        return texts_of(node.body) + texts_of(node.orelse)
    if isinstance(node, ast.BinOp):
        return [left + right for left in texts_of(node.left) or ["{}"]
                for right in texts_of(node.right) or ["{}"]]
    return []


def python_texts(root, kinds):
    """(place, text) of the arguments of the functions or keywords in `kinds`."""
    for path in sorted((root / "tools").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                given = node.args[:1] if name in kinds else []
                given += [word.value for word in node.keywords if word.arg in kinds]
                for text in (text for argument in given for text in texts_of(argument)):
                    yield f"{path.name}:{node.lineno}", text


def unfilled(text):
    """(line, string) of each string that names a value in braces but is no f-string. Names that
    the file gives to .format(), docstrings and the $ of a shell are left out."""
    given = set(re.findall(r"\b(\w+)=", " ".join(re.findall(r"\.format\(([^)]*)", text))))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.STRING and not re.match(FILLED, token.string):
            if set(PLACEHOLDER.findall(token.string)) - given:
                yield token.start[0], token.string


def c_texts(root):
    """(place, text) of the messages of the tools in C."""
    for path in sorted((root / "tools").rglob("*.[ch]")):
        text = without_comments(path.read_text(encoding="utf-8"))
        for call in C_CALL.finditer(text):
            given = arguments(text, call.end())
            name = call.group(1)
            if name in ("fprintf", "fputs") and "stderr" not in map(str.strip, given):
                continue
            place = C_PRINTING[name]
            is_reason = name in REASONS or (name, path.parent.name) == ("fail", "persist")
            for line in literal_groups(given[place] if len(given) > place else ""):
                yield (f"{path.name}:{text.count(chr(10), 0, call.start()) + 1}",
                       ("%s: " if is_reason else "") + line.strip())


def messages(root):
    """(place, text) of all messages; a text of values alone passes another message on."""
    found = [*printed_lines(root), *c_texts(root), *python_texts(root, PYTHON_PRINTING)]
    return [(place, re.sub(r"^(?:cairn[\w-]*|cairn [a-z]+): ", "", text)) for place, text in found
            if " " in re.sub(r"%\w|\{\}|[: ]+$", "", text).strip() and not text.startswith("usage")]


def wrong(place, text):
    """Yields the faults in the form of a message."""
    if not NAME_FIRST.match(text):
        yield f"{place}: begins with a capital letter: {text}"
    if re.search(r"[^.]\.$", text) and "Please report" not in text:
        yield f"{place}: ends with a full stop: {text}"
    if NUMBERED_ERROR.search(text):
        yield f"{place}: gives an error by its number: {text}"
    if not OBJECT.search(text) and text not in ALONE:
        yield f"{place}: names no object: {text}"
    yield from check_words(place, text)


def wrong_help(place, text):
    """Yields the faults in the form of a help text."""
    if not re.match(r"[A-Z\d-]|\{|lib", text) or not re.search(r"[.…]$", text.strip()):
        yield f"{place}: is no sentence: {text}"
    yield from check_words(place, text)


class MessagesTest(unittest.TestCase):
    def findings(self, check, texts):
        return [finding for place, text in texts for finding in check(place, text)]

    def test_messages(self):
        found = messages(ROOT)
        self.assertGreater(len(found), 250)
        for name in ("free.c", "stack.c", "start.c", "core.c", "player_records.c",
                     "trace_reader.c", "output.py", "stats_command.py"):
            with self.subTest(name):
                self.assertTrue(any(place.startswith(f"{name}:") for place, _ in found))
        self.assertEqual(self.findings(wrong, found), [])

    def test_help_texts(self):
        found = list(python_texts(ROOT, ("help",)))
        self.assertGreater(len(found), 100)
        self.assertEqual(self.findings(wrong_help, found), [])

    def test_values_are_filled_in(self):
        found = [f"{path.name}:{line}: {string}" for path in sorted((ROOT / "tools").rglob("*.py"))
                 for line, string in unfilled(path.read_text(encoding="utf-8"))]
        self.assertEqual(found, [])

    def test_what_is_not_filled_in(self):
        for text in ('a = f"{x} and " "{self.y[\'z\']} more"\n', 'say("held {count} times")\n',
                     'f(f"a",\n  "at most {x[0] / 1000:.1f} ms")\n'):
            self.assertEqual(len(list(unfilled(text))), 1, text)
        for text in ('T = ("{a} of "\n     "{b}")\nsay(T.format(a=1, b=2))\n', 'f"{x}" f"{y}"\n',
                     'run("${Version}")\n', '"{}" "{0}" "{ x }"\n'):
            self.assertEqual(list(unfilled(text)), [], text)

    def test_what_is_wrong(self):
        for text, words in (("Cannot read %s", "capital"), ("cannot read %s.", "full stop"),
                            ("cannot read %s: error %d", "number"), ("bad", "object"),
                            ("nothing of {} is beside it", "next to")):
            with self.subTest(text):
                self.assertIn(words, " ".join(wrong("here", text)))
        self.assertEqual(list(wrong("here", "cannot read %s: %s")), [])
        self.assertIn("sentence", " ".join(wrong_help("here", "the file")))

    def test_where_messages_are_found(self):
        files = {"src/a.c": 'void f(void) { die("free of %p, here", p); }\n',
                 "tools/b.c": 'void f(void) { fputs("no file %s\\n", stderr); fputs("x y", out); }',
                 "tools/c.py": 'raise UserError(f"{name}: not " + ("one" if x else "two here"))\n'}
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "include").mkdir()
            for name, text in files.items():
                (root / name).parent.mkdir(exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            self.assertEqual(messages(root), [
                ("a.c:1", "free of %p, here"), ("b.c:1", "no file %s"),
                ("c.py:1", "{}: not one"), ("c.py:1", "{}: not two here")])


if __name__ == "__main__":
    unittest.main()
