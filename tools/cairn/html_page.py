"""Makes a report as one HTML file that needs no other file and no network.

The parts of a page are in page/. page.css and page.js are in every report, and those of the others
that it names:

 table.js     makeTable: a table that can be sorted and searched
 flame.js     makeFlame: a flame graph of a tree of frames
 treemap.js   makeTreemap: a tree as rectangles on a canvas
 timeline.js  makeTimeline: lines over time on a canvas

The comment at the start of each file documents its arguments. The report's own file is last; it
reads `data` and fills `byId("content")`. Mouse and keys behave alike everywhere: arrow keys move,
Enter descends, Escape ascends, / searches. Names from a program are passed as JSON and shown as
text, never as HTML.
"""

import html
import pathlib

from cairn.texts import json_text

PARTS = pathlib.Path(__file__).resolve().parent / "page"
POLICY = ("default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
          "img-src data:; base-uri 'none'; form-action 'none'")


def _part(name):
    return (PARTS / name).read_text(encoding="utf-8")


def page(title, sentences, data, parts, keys="", search="search (/)"):
    """Returns the text of the file.

    sentences: lines below the title; data: passed to the scripts; parts: names of files in page/,
    the report's own last; keys: a sentence on the keys; search: the placeholder of the search
    field, "" for no field.
    """
    script = "\n".join(_part(name) for name in ("page.js", *parts))
    # A name must not end the element that contains it.
    text = json_text(data, separators=(",", ":")).replace("<", "\\u003c")
    about = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)
    field = (f'<input id="search" type="search" placeholder="{html.escape(search)}" '
             'aria-label="search">' if search else "")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<link rel="icon" href="data:,"><style>{_part("page.css")}</style></head><body>
<h1>{html.escape(title)}</h1>{about}
<div class="bar" id="bar">{field}</div>
<main id="content"></main>
<p>{html.escape(keys)}</p>
<script type="application/json" id="data">{text}</script>
<script>{script}</script>
</body></html>
"""
