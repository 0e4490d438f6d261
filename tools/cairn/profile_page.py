"""A profile as one HTML file: flame graph, table and search, without a request to anywhere."""

import html
import json

from cairn.inspect_command import bytes_text
from cairn.profile_report import opening, remarks

LEAST_SHARE = 1 / 20000  # of all bytes; smaller frames are left out, or pages grow without end


def _node(name):
    # name, bytes in use, bytes allocated, blocks in use, blocks allocated, children by name
    return [name, 0, 0, 0, 0, {}]


def _add(node, site):
    node[1] += site.live.bytes
    node[2] += site.allocated.bytes
    node[3] += site.live.objects
    node[4] += site.allocated.objects


def _shown(node, least, names):
    children = sorted(node[5].values(), key=lambda child: (-child[1], -child[2], child[0]))
    return [names.setdefault(node[0], len(names)), node[1], node[2], round(node[3]), round(node[4]),
            [_shown(child, least, names) for child in children
             if child[1] >= least[0] or child[2] >= least[1]]]


def tree(profile, symbols):
    """{"names": …, "root": [name, in use, allocated, blocks in use, blocks allocated, children]}"""
    root = _node("all")
    for site in profile.sites:
        _add(root, site)
        node = root
        for frame in reversed(symbols.stack(site.frames)):
            node = node[5].setdefault(str(frame), _node(str(frame)))
            _add(node, site)
    names = {}
    least = (max(1, root[1] * LEAST_SHARE), max(1, root[2] * LEAST_SHARE))
    shown = _shown(root, least, names)
    return {"names": list(names), "root": shown}


STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1b1b1f; --soft: #5f6068; --line: #d8d8de;
  --frame: #f3c98b; --frame2: #eeb06a; --mark: #7a3fd0; --pick: #0b57d0; }
@media (prefers-color-scheme: dark) { :root { --back: #17181c; --text: #e8e8ec; --soft: #a2a3ad;
  --line: #3a3b43; --frame: #6b4a1f; --frame2: #7f5722; --mark: #b794f6; --pick: #8ab4f8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1400px; padding: 1rem; background: var(--back);
  color: var(--text); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0 0 .3rem; } p { margin: .2rem 0; color: var(--soft); }
.bar { display: flex; gap: .6rem; flex-wrap: wrap; align-items: center; margin: .8rem 0; }
button, input { font: inherit; color: inherit; background: var(--back);
  border: 1px solid var(--line); border-radius: 6px; padding: .3rem .7rem; }
button[aria-pressed=true] { border-color: var(--pick); color: var(--pick); font-weight: 600; }
:focus-visible { outline: 2px solid var(--pick); outline-offset: 1px; }
#flame { position: relative; overflow: hidden; }
#flame div { position: absolute; height: 19px; text-indent: 4px; overflow: hidden; cursor: pointer;
  white-space: nowrap; font-size: 12px; line-height: 19px; border-radius: 2px;
  background: var(--frame); }
#flame div.odd { background: var(--frame2); } #flame div.found { background: var(--mark);
  color: var(--back); } #flame div.above { opacity: .55; }
#said { min-height: 2.9em; margin: .5rem 0; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; color: var(--text); }
table { border-collapse: collapse; width: 100%; margin-top: .6rem; table-layout: fixed; }
th, td { text-align: right; padding: .2rem .5rem; border-bottom: 1px solid var(--line);
  font-variant-numeric: tabular-nums; } th { position: sticky; top: 0; background: var(--back); }
th:first-child, td:first-child { text-align: left; width: 50%; overflow-wrap: anywhere; }
th button { border: 0; padding: 0; font-weight: 600; }
"""

SCRIPT = r"""
'use strict';
const data = JSON.parse(document.getElementById('data').textContent), names = data.names;
const flame = document.getElementById('flame'), said = document.getElementById('said');
const search = document.getElementById('search'), body = document.querySelector('tbody');
let live = data.root[1] > 0, path = [data.root], sort = 1, shown = [], wanted = null;
const value = node => live ? node[1] : node[2], blocks = node => live ? node[3] : node[4];
function bytes(n) {
  for (const unit of ['B', 'KiB', 'MiB', 'GiB', 'TiB']) {
    if (n < 1024 || unit === 'TiB') return (unit === 'B' ? n : n.toFixed(1)) + ' ' + unit;
    n /= 1024;
  }
}
const share = n => (100 * n / Math.max(1, value(data.root))).toFixed(1) + ' %';
const text = node => names[node[0]] + ': ' + bytes(value(node)) + ', ' + share(value(node)) +
  ', some ' + blocks(node) + ' blocks';
function place(node, trail, left, width, depth, above) {
  const box = document.createElement('div');
  box.style.cssText =
    'left:' + left + '%;width:calc(' + width + '% - 1px);top:' + depth * 20 + 'px';
  box.textContent = width > 2 ? names[node[0]] : '';
  box.className = (node[0] % 2 ? 'odd' : '') + (above ? ' above' : '') +
    (wanted && wanted.test(names[node[0]]) ? ' found' : '');
  box.setAttribute('role', 'treeitem');
  box.setAttribute('aria-label', text(node));
  box.setAttribute('aria-level', trail.length);
  box.tabIndex = -1;
  box.trail = trail;
  box.box = {left, depth, right: left + width};
  flame.append(box);
  shown.push(box);
}
function grow(node, trail, left, width, depth) {
  let deepest = depth;
  for (const child of node[5]) {
    const part = width * value(child) / Math.max(1, value(node));
    if (part > 0.06) {
      const below = trail.concat([child]);
      place(child, below, left, part, depth, false);
      deepest = Math.max(deepest, grow(child, below, left, part, depth + 1));
    }
    left += part;
  }
  return deepest;
}
function draw() {
  flame.replaceChildren();
  shown = [];
  path.forEach((node, depth) =>
    place(node, path.slice(0, depth + 1), 0, 100, depth, depth + 1 < path.length));
  const deepest = grow(path[path.length - 1], path, 0, 100, path.length);
  flame.style.height = (deepest + 1) * 20 + 'px';
  shown[path.length - 1].tabIndex = 0;
  for (const [id, on] of [['live', live], ['all', !live]])
    document.getElementById(id).setAttribute('aria-pressed', on);
}
function zoom(trail, focus) {
  path = trail;
  draw();
  if (focus) shown[path.length - 1].focus();
}
function tell(box) {
  said.textContent = text(box.trail[box.trail.length - 1]) + ' — ' +
    box.trail.slice(1).map(node => names[node[0]]).join(' › ');
}
function table() {
  const sums = new Map();
  (function walk(node, above) {
    const first = !above.has(node[0]);
    if (node !== data.root) {
      const row = sums.get(node[0]) || [names[node[0]], 0, 0, 0];
      sums.set(node[0], row);
      row[1] += value(node) - node[5].reduce((sum, child) => sum + value(child), 0);
      if (first) { row[2] += value(node); row[3] += blocks(node); above.add(node[0]); }
    }
    node[5].forEach(child => walk(child, above));
    if (first) above.delete(node[0]);
  })(data.root, new Set());
  const rows = [...sums.values()].filter(row => row[2] > 0 && (!wanted || wanted.test(row[0])));
  rows.sort((a, b) => sort === 0 ? a[0].localeCompare(b[0]) : b[sort] - a[sort] || b[2] - a[2]);
  body.replaceChildren(...rows.slice(0, 500).map(row => {
    const line = document.createElement('tr');
    [row[0], bytes(row[1]), bytes(row[2]), row[3]].forEach(cell => {
      line.append(Object.assign(document.createElement('td'), {textContent: cell}));
    });
    return line;
  }));
  document.querySelectorAll('th').forEach((head, number) =>
    head.setAttribute('aria-sort', number !== sort ? 'none' : sort ? 'descending' : 'ascending'));
}
function find() {
  try { wanted = search.value ? new RegExp(search.value, 'i') : null; } catch { wanted = null; }
  draw();
  table();
  if (!wanted) { said.textContent = ''; return; }
  let sum = 0;
  (function walk(node) {
    if (node !== data.root && wanted.test(names[node[0]])) sum += value(node);
    else node[5].forEach(walk);
  })(data.root);
  said.textContent = 'found: ' + bytes(sum) + ', ' + share(sum);
}
flame.addEventListener('click', event => {
  if (event.target.trail) zoom(event.target.trail, true);
});
flame.addEventListener('mouseover', event => { if (event.target.trail) tell(event.target); });
flame.addEventListener('focusin', event => { if (event.target.trail) tell(event.target); });
flame.addEventListener('keydown', event => {
  const here = event.target.box, at = shown.indexOf(event.target);
  if (!here) return;
  const row = shown.filter(box => box.box.depth === here.depth);
  let next = null;
  if (event.key === 'ArrowDown')
    next = shown.find(box => box.box.depth === here.depth + 1 && box.box.left >= here.left - 1e-9 &&
      box.box.left < here.right);
  if (event.key === 'ArrowUp')
    next = [...shown].reverse().find(box => box.box.depth === here.depth - 1 &&
      box.box.left <= here.left + 1e-9 && box.box.right > here.left);
  if (event.key === 'ArrowRight') next = row[row.indexOf(event.target) + 1];
  if (event.key === 'ArrowLeft') next = row[row.indexOf(event.target) - 1];
  if (event.key === 'Enter' || event.key === ' ') { zoom(shown[at].trail, true); next = null; }
  else if (!next) return;
  event.preventDefault();
  if (next) { event.target.tabIndex = -1; next.tabIndex = 0; next.focus(); }
});
document.addEventListener('keydown', event => {
  if (event.key === '/' && event.target !== search) { event.preventDefault(); search.focus(); }
  if (event.key === 'Escape') { search.value = ''; find(); zoom([data.root], true); }
});
search.addEventListener('input', find);
for (const [id, on] of [['live', true], ['all', false]])
  document.getElementById(id).addEventListener('click', () => {
    live = on; path = [data.root]; find();
  });
document.querySelectorAll('th button').forEach((button, number) =>
  button.addEventListener('click', () => { sort = number; table(); }));
document.getElementById('out').addEventListener('click', () => zoom([data.root], true));
find();
"""


def page(profile, symbols):
    """The text of the file."""
    title = f"{profile.program}: heap profile"
    # Nothing in a name may end the element that holds it.
    data = json.dumps(tree(profile, symbols), separators=(",", ":")).replace("<", "\\u003c")
    about = "".join(f"<p>{html.escape(text)}</p>" for text in (
        opening(profile),
        f"in use {bytes_text(profile.sum(True).bytes)}, allocated "
        f"{bytes_text(profile.sum(False).bytes)}, {profile.sum(False).samples} samples",
        *remarks(profile, symbols)))
    heads = "".join(f'<th scope="col"><button>{text}</button></th>'
                    for text in ("function", "by itself", "with what it calls", "blocks"))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline';
 script-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,"><style>{STYLE}</style></head><body>
<h1>{html.escape(title)}</h1>{about}
<div class="bar"><button id="live">in use</button><button id="all">allocated</button>
<button id="out">all of it</button>
<input id="search" type="search" placeholder="search (/)" aria-label="search functions"></div>
<div id="flame" role="tree" aria-label="flame graph"></div><div id="said" aria-live="polite"></div>
<p>Arrow keys go from frame to frame, Enter zooms in, Escape goes back.</p>
<table><thead><tr>{heads}</tr></thead><tbody></tbody></table>
<script type="application/json" id="data">{data}</script><script>{SCRIPT}</script>
</body></html>
"""
