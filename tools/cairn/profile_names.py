"""Prints stacks: short names of functions, and the frames up to the program's own.

A frame is of one of three kinds. `own` is code of the program or of a library outside the system's
folders. `library` is code of a library of the system. `runtime` is the standard library of C, C++
or Rust, wherever its code was compiled into. A reader looks for own frames. So a run of runtime
frames is printed as the function that the program called, or not at all behind an own frame; a long
run of library frames as its two ends; and the stack ends with the third own frame.
"""

import os
import re

OWN_SHOWN = 3
WITHOUT_OWN_SHOWN = 4  # frames of a stack without own frames
LIBRARY_SHOWN = 3  # of a run of library frames; a longer one is cut in the middle
CUT = "…"

_OPERATOR = re.compile(r"\boperator\s*(<=>|<<=?|>>=?|->\*?|<=?|>=?|\+\+|--|&&|\|\||\(\)|\[\]"
                       r"|[-+*/%^&|=!]=?|~|,)(?: (?=<))?")
_HIDE = str.maketrans("<>()", "\1\2\3\4")
_SHOW = str.maketrans({"\1": "<", "\2": ">", "\3": "(", "\4": ")", "\6": "<…>", "\7": ""})
_ARGUMENTS = re.compile(r"\([^()]*\)")
_TEMPLATE = re.compile(r"(?<=[\w:\x01\x02\x04\x06\x07])<[^<>]*>")
_QUALIFIER = re.compile(r"(?: ?(?:const|volatile|noexcept|&&?))+$")
_OFFSET = re.compile(r"\+0x[0-9a-f]+$")  # in a file that does not exist here
_REMARK = re.compile(r"\[(?:abi:|clone )[^]]*\]| ?\.(?:isra|part|constprop|cold)[.\d]*$")
_STRINGS = re.compile(r"\bstd::basic_(string|ostream|istream|stringstream|ostringstream|"
                      r"istringstream|ofstream|ifstream|fstream|streambuf|filebuf|regex)\x06")


def _collapse(text, pattern, instead):
    while True:
        shorter = pattern.sub(instead, text)
        if shorter == text:
            return text
        text = shorter


def _without_result(text):
    """The name without the type of the result, which templates have in front of it."""
    if " as " in text:  # Rust: <Type as Trait>::function
        return text
    match = re.search(r"(?:\S*::)?\boperator (?=\S)", text)
    return text[match.start():] if match else text.rpartition(" ")[2]


def short_name(name):
    """A function name without the repetitions of its types: std::vector<…>::push_back."""
    if not set(name) & set("<( [") or _OFFSET.search(name):
        return name
    text = _OPERATOR.sub(lambda match: f"operator{match[1].translate(_HIDE)}\7", name)
    text = text.replace("->", "-\2").replace("(anonymous namespace)", "\3anonymous\4")
    text = _REMARK.sub("", text).rstrip()
    text = _collapse(text, _ARGUMENTS, "")
    text = _collapse(text, _QUALIFIER, "")
    before = None
    while text != before:  # the rest of a template's arguments may itself be such a type
        before = text
        text = _collapse(text, _TEMPLATE, "\6")
        text = re.sub(r"<([^<>]*)>", "\1\\1\2", text, count=1)
    text = re.sub("std::__(?:cxx11|1)::", "std::", _without_result(text.replace("::\6", "")))
    text = text.removesuffix("\6")
    text = _STRINGS.sub(r"std::\1", text).translate(_SHOW)
    return text or name


def fitted(frame, room):
    """A frame in at most `room` columns; None: no limit. The last parts of its name are kept."""
    name = short_name(frame.function)
    place = "" if _RUNTIME_FILE.match(frame.file) else str(frame)[len(frame.function):]
    if room is None or len(name) + len(place) <= room:
        return name + place
    room_for_name = room - len(place)
    parts = name.split("::")
    while len(parts) > 1 and len("::".join([CUT, *parts])) > room_for_name:
        parts.pop(0)
    shorter = "::".join([CUT, *parts])
    if len(shorter) <= room_for_name:
        return shorter + place
    whole = name + place
    return CUT + whole[len(whole) - room + 1:]


_RUNTIME_MODULE = re.compile(r"(?:ld-linux.*|ld-musl.*|libc|libm|libpthread|libdl|librt|libstdc\+\+"
                             r"|libc\+\+|libc\+\+abi|libgcc_s|libcairn.*)(?:[-.].*)?\.so.*")
_RUNTIME_NAME = re.compile(r"std::|__gnu_cxx::|__cxxabiv1::|operator (?:new|delete)"
                           r"|__r(?:ust|dl|g)_"
                           r"|<?alloc::(?:alloc|raw_vec|vec|string|boxed|sync|rc)\b")
_RUNTIME_FILE = re.compile(r"/usr/(?:local/)?(?:include/c\+\+|lib/gcc)|.*/c\+\+/v1/|/rustc/"
                           r"|.*/library/(?:alloc|core|std)/src/")
_INSIDE = re.compile(r"std::_|__gnu_cxx::|operator new|__r|.*(?:::_|allocat|raw_vec|::alloc::)")
_SYSTEM_FOLDER = re.compile(r"(?:/usr)?/lib(?:32|64|x32)?(?:/[^/]+-linux-[^/]+)?")
_START = re.compile(r"_start$|_start_c$|__libc_start|start_thread$|_*clone3?$")

OWN, LIBRARY, RUNTIME = range(3)


def kind_of(frame):
    """OWN, LIBRARY or RUNTIME."""
    module = os.path.basename(frame.path)
    if _RUNTIME_MODULE.fullmatch(module) or _RUNTIME_FILE.match(frame.file) or \
            _RUNTIME_NAME.match(short_name(frame.function)):
        return RUNTIME
    if ".so" in module and _SYSTEM_FOLDER.fullmatch(os.path.dirname(frame.path)):
        return LIBRARY
    return OWN


def _runs(frames):
    """(kind, consecutive frames) of a stack."""
    run, last = [], None
    for frame in frames:
        kind = kind_of(frame)
        if run and kind != last:
            yield last, run
            run = []
        run.append(frame)
        last = kind
    if run:
        yield last, run


def _called(run):
    """The function that the program called, of a run of runtime frames."""
    return next((frame for frame in reversed(run)
                 if not _INSIDE.match(short_name(frame.function))), run[-1])


def _without_start(frames):
    """The stack without the functions that start a program or a thread."""
    end = len(frames)
    while end > 1 and _START.match(frames[end - 1].function):
        end -= 1
    return frames[:end]


def chosen(frames):
    """The frames to print, innermost first, and text in the place of others."""
    frames, shown, own, done = _without_start(frames), [], 0, 0
    for kind, run in _runs(frames):
        if kind == OWN:
            run = run[:OWN_SHOWN - own]
            own += len(run)
            shown += run
        elif kind == RUNTIME:
            shown += [] if own else [_called(run)]
        elif len(run) > LIBRARY_SHOWN:
            shown += [run[0], f"{CUT} {len(run) - 2} more of {os.path.basename(run[0].path)}",
                      run[-1]]
        else:
            shown += run
        done += len(run)
        if own == OWN_SHOWN:
            break
    if own == 0:
        return first(frames, WITHOUT_OWN_SHOWN)
    return shown + _rest(frames[done:])


def _rest(frames):
    return [f"{CUT} {len(frames)} more"] if len(frames) > 1 else list(frames)


def first(frames, depth):
    """The first frames of a stack."""
    return [*frames[:depth], *_rest(frames[depth:])]


def lines(frames, depth, room):
    """A stack as lines of text. depth: number of frames; None: those of `chosen`."""
    shown = chosen(frames) if depth is None else first(frames, depth)
    return [frame if isinstance(frame, str) else fitted(frame, room) for frame in shown]
