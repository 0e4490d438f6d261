"""One HTML file that needs no other and asks no network: the frame of every report.

What a page consists of lies in page/: page.css and page.js are in each, and of the rest those that
it names:

 table.js     makeTable: sorts, is searched
 flame.js     makeFlame: a flame graph of a tree of frames
 treemap.js   makeTreemap: a tree as rectangles on a canvas
 timeline.js  makeTimeline: lines over time on a canvas

The comment at each one's beginning says what it takes. The page's own file comes last, reads `data`
and puts them together; `byId("content")` is there for it. Mouse and keys do the same everywhere:
arrow keys go on, Enter goes in, Escape goes back, / searches. Names from a program reach the page
as JSON and its elements as text, never as HTML.
"""

import html
import json
import pathlib

PARTS = pathlib.Path(__file__).resolve().parent / "page"
POLICY = ("default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
          "img-src data:; base-uri 'none'; form-action 'none'")


def _part(name):
    return (PARTS / name).read_text(encoding="utf-8")


def page(title, sentences, data, parts, keys="", search="search (/)"):
    """The text of the file.

    sentences: what stands below the title; data: what the scripts get; parts: names of files in
    page/, the page's own last; keys: a sentence on the keys; search: the words in the search field,
    "" for none.
    """
    script = "\n".join(_part(name) for name in ("page.js", *parts))
    # Nothing in a name may end the element that holds it.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
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
