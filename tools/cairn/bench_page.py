"""The report as one HTML page that needs no other file."""

import base64
import html

from cairn import bench_report

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1c1c1c; margin: 2em auto; max-width: 78em;
       padding: 0 1em; }
h1, h2 { font-weight: 600; } h2 { margin-top: 2em; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { padding: .25em .7em; text-align: right; white-space: nowrap;
         border-bottom: 1px solid #e4e4e4; }
th { border-bottom: 2px solid #888; }
th:first-child, td:first-child, .second-left td:nth-child(2), .second-left th:nth-child(2),
.all-left td { text-align: left; }
tr.lost td { background: #fdecea; } tr:hover td { background: #f2f6fa; }
img { max-width: 100%; margin: 1em 0; }
summary { cursor: pointer; font-weight: 600; margin: 1.5em 0 .5em; }
"""
FOLDED = ("Other figures",)  # long, and of interest to few
ALL_LEFT = ("Goals", "Failed and skipped", "Machine and versions")


def _table(table):
    kind = "all-left" if table.title in ALL_LEFT else "second-left"
    yield f'<div class="scroll"><table class="{kind}"><thead><tr>'
    yield "".join(f"<th>{html.escape(text)}</th>" for text in table.columns)
    yield "</tr></thead><tbody>"
    for index, cells in enumerate(table.rows):
        yield '<tr class="lost">' if index in table.lost else "<tr>"
        yield "".join(f"<td>{html.escape(text)}</td>" for text in cells) + "</tr>"
    yield "</tbody></table></div>"


def _section(table):
    title = html.escape(table.title)
    if table.title in FOLDED:
        yield f"<details><summary>{title}</summary>"
    else:
        yield f"<h2>{title}</h2>"
    if table.text:
        yield f"<p>{html.escape(table.text)}</p>"
    yield from _table(table)
    if table.title in FOLDED:
        yield "</details>"


def _image(title, path):
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<img alt="{html.escape(title)}" src="data:image/png;base64,{data}">'


def page(session, facts, directory, plots):
    """The page's text; `plots` are (title, file name) in the directory."""
    parts = ["<!doctype html>", '<html lang="en"><head><meta charset="utf-8">',
             '<meta name="viewport" content="width=device-width">',
             "<title>Cairn: benchmark</title>", f"<style>{STYLE}</style></head><body>",
             "<h1>Benchmark</h1>", f"<p>{html.escape(bench_report.opening(session))}</p>"]
    parts += [f"<p>{html.escape(sentence)}</p>" for sentence in session.remarks()]
    tables = bench_report.tables(session)
    for table in tables[:2]:
        parts += _section(table)
    parts += [_image(title, directory / name) for title, name in plots]
    for table in [*tables[2:], bench_report.facts_table(facts, session.results.allocators)]:
        parts += _section(table)
    return "\n".join([*parts, "</body></html>"]) + "\n"
