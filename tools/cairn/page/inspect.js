// The page of `cairn inspect --html`: sums, a treemap by size or by heap, the map of addresses, and
// tables. tools/cairn/inspect_page.py fills `data`.
const content = byId('content');
const title = text => content.append(element('h2', {textContent: text}));
const NAMES = {slab: 'slabs', large: 'large blocks', huge: 'blocks with own mappings',
  free: 'free runs of pages', kept: 'freed, and kept', run: 'pages of other allocators',
  revoked: 'freed, addresses fault'};
const HUES = {slab: 'c0', large: 'c2', huge: 'c5', free: 'c1', kept: 'c7', run: 'c6',
  revoked: 'c3', metadata: 'c4'};
const USES = {free: ' not given back yet', kept: ' kept'};
const sizeName = (size, packed) => size + '-byte blocks' + (packed ? ', packed' : '');
const heapName = heap => heap === '0' ? 'kept, empty' : 'heap ' + heap;

// Nodes of the treemap: {name, bytes, used, kind, more, children}.
function node(name, kind, children, bytes = 0, used = 0, more = '') {
  for (const child of children) { bytes += child.bytes; used += child.used; }
  return {name, kind, children, bytes, used, more};
}
function grouped(rows, keys) {
  if (!keys.length)
    return [];
  const found = new Map();
  rows.forEach(row => {
    const key = keys[0](row);
    found.set(key, [...(found.get(key) || []), row]);
  });
  return [...found].map(([name, members]) => {
    const below = grouped(members, keys.slice(1));
    const sum = place => members.reduce((total, row) => total + row[place], 0);
    const more = number(sum(6)) + ' of ' + number(sum(7)) + ' blocks in ' + number(sum(3)) +
      ' slabs, ' + bytes(sum(8)) + ' of their pages without a block';
    const made = node(name, 'slab', below, below.length ? 0 : sum(4), below.length ? 0 : sum(5));
    return {...made, more};
  });
}
function others() {
  return Object.keys(NAMES).slice(1).map(kind => node(NAMES[kind], kind, data.runs
    .filter(run => run[0] === kind)
    .map(run => node(run[1], kind, [], run[2], run[3])))).filter(made => made.bytes > 0);
}
const bySize = row => sizeName(row[0], row[1]), byHeap = row => heapName(row[2]);
const tree = keys => node('heap', 'all', [
  node('slabs', 'slab', grouped(data.groups, keys)), ...others(),
  node('metadata', 'metadata', [], data.words.metadata, data.words.metadata)]);
const trees = {'by size': tree([bySize, byHeap]), 'by heap': tree([byHeap, bySize])};

const cards = element('div', {className: 'cards'});
for (const [name, value] of [['allocated', data.words.allocated], ['active', data.words.active],
  ['resident', data.words.resident], ['dirty', data.words.dirty],
  ['retained', data.words.retained], ['metadata', data.words.metadata]])
  if (value !== undefined)
    cards.append(element('div', {}, element('span', {textContent: name}), bytes(value)));
content.append(cards);

// Explains the colours of the kinds in this heap, and the colour of memory without blocks.
function legend() {
  const kinds = Object.keys(NAMES)
    .filter(kind => kind === 'slab' || data.runs.some(run => run[0] === kind));
  const entries = [...kinds.map(kind => [HUES[kind], NAMES[kind]]),
    [HUES.metadata, 'metadata'], ['free', 'no block in it, or given back']];
  return element('div', {className: 'legend'}, ...entries.map(([hue, text]) => {
    const dot = element('i');
    dot.style.background = 'var(--' + hue + ')';
    return element('span', {}, dot, text);
  }));
}

title('What it consists of');
content.append(legend(), element('p', {textContent: 'Each rectangle is memory, filled as far as it is in ' +
  'use by live blocks; free runs as far as they were not given back.'}));
const map = makeTreemap({parent: content, root: trees['by size'], value: made => made.bytes,
  children: made => made.children, name: made => made.name, hue: made => HUES[made.kind],
  part: made => made.used / Math.max(1, made.bytes),
  text: made => made.name + ': ' + bytes(made.bytes) + (made.kind === 'all' ? '' : ', ' +
    bytes(made.used) + (USES[made.kind] || ' in use')) + (made.more ? '; ' + made.more : '')});
choices(byId('bar'), Object.fromEntries(Object.keys(trees).map(name =>
  [name, () => map.show(trees[name])])), 'by size');

title('Where it lies');
content.append(legend(), element('p', {textContent: 'Each cell is ' + bytes(data.map.cell) + '.'}));
makeCells({parent: content, parts: data.map.parts, cellBytes: data.map.cell,
  paint: cell => ({hue: HUES[data.map.kinds[cell[0]]], part: cell[1] / 100}),
  text: cell => {
    const kind = data.map.kinds[cell[0]];
    return kind === 'slab' ? sizeName(cell[2], 0) + ', ' + cell[1] + ' % live' :
      NAMES[kind] + (kind === 'free' ? ', ' + cell[1] + ' % not given back yet' : '');
  }});

const sums = new Map();
data.groups.forEach(row => {
  const name = sizeName(row[0], row[1]);
  const sum = sums.get(name) || [name, row[0], 0, 0, 0, 0, 0, 0, 0];
  [row[3], row[6], row[7]].forEach((value, place) => { sum[place + 2] += value; });
  [row[5], row[4], row[8]].forEach((value, place) => { sum[place + 6] += value; });
  sum[5] = sum[3] / Math.max(1, sum[4]);
  sums.set(name, sum);
});
title('Slabs, by size of their blocks');
makeTable({parent: content, label: 'sizes', sort: 7, most: 20, rows: [...sums.values()], columns: [
  {name: 'blocks', kind: 'text'}, {name: 'size', kind: 'number'}, {name: 'slabs', kind: 'number'},
  {name: 'live', kind: 'number'}, {name: 'slots', kind: 'number'}, {name: 'fill', kind: 'percent'},
  {name: 'live bytes', kind: 'bytes'}, {name: 'slab bytes', kind: 'bytes'},
  {name: 'no block in', kind: 'bytes'}]});
title('Thread heaps');
makeTable({parent: content, label: 'heaps', sort: 5, most: 20, pick: row => search(row[0]),
  rows: data.heaps.map(row => [heapName(row[0]), ...row.slice(1)]), columns: [
    {name: 'heap', kind: 'text'}, {name: 'thread', kind: 'text'}, {name: 'slabs', kind: 'number'},
    {name: 'live', kind: 'number'}, {name: 'live bytes', kind: 'bytes'},
    {name: 'slab bytes', kind: 'bytes'}, {name: 'to collect', kind: 'bytes'},
    {name: 'kept', kind: 'bytes'}, {name: 'large blocks', kind: 'bytes'}]});
title('Slabs that few blocks hold');
makeTable({parent: content, label: 'slabs that few blocks hold', sort: 4, most: 20,
  rows: data.sparse.map(row => [...row.slice(0, 6), heapName(row[6])]), columns: [
    {name: 'address', kind: 'text'}, {name: 'block size', kind: 'number'},
    {name: 'live', kind: 'number'}, {name: 'slots', kind: 'number'},
    {name: 'bytes', kind: 'bytes'}, {name: 'no block in', kind: 'bytes'},
    {name: 'of', kind: 'text'}]});
title('Large blocks and free runs');
makeTable({parent: content, label: 'large blocks and free runs', sort: 2, most: 20,
  rows: data.runs.map(row => [NAMES[row[0]], ...row.slice(1)]), columns: [
    {name: 'what', kind: 'text'}, {name: 'address', kind: 'text'}, {name: 'bytes', kind: 'bytes'},
    {name: 'in use or dirty', kind: 'bytes'}]});
