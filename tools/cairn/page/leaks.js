// The page of `cairn leaks --html`. `_page` of tools/cairn/leaks_command.py fills `data`.
const content = byId('content'), sums = data.sums;
const hasStacks = data.leaks.some(leak => leak[6]);
const cards = element('div', {className: 'cards'});
for (const [name, text] of [['lost directly', bytes(sums.direct_bytes)],
  ['held by those', bytes(sums.held_bytes)], ['blocks lost', number(sums.direct_blocks +
    sums.held_blocks)], ['of live blocks', number(sums.live_blocks)]])
  cards.append(element('div', {}, element('span', {textContent: name}), text));
content.append(cards);

// Rows sorted by size; rows of equal size by the first bytes of their blocks.
const bySize = new Map();
data.leaks.forEach(leak => {
  const kinds = bySize.get(leak[1]) || new Map(), kind = leak[5] || leak[4];
  bySize.set(leak[1], kinds);
  kinds.set(kind, [...(kinds.get(kind) || []), leak]);
});
const sumOf = nodes => ({bytes: nodes.reduce((sum, one) => sum + one.bytes, 0),
  own: nodes.reduce((sum, one) => sum + one.own, 0), children: nodes});
const root = {name: 'lost', ...sumOf([...bySize].map(([size, kinds]) => ({
  name: size + ' bytes', ...sumOf([...kinds].map(([kind, leaks]) => ({
    name: leaks.length + ' × ' + kind, ...sumOf(leaks.slice(0, 200).map(leak => ({name: leak[0],
      bytes: leak[1] + leak[2], own: leak[1], children: []}))),
    bytes: leaks.reduce((sum, leak) => sum + leak[1] + leak[2], 0),
    own: leaks.reduce((sum, leak) => sum + leak[1], 0)})))})))};
if (root.bytes > 0) {
  content.append(element('h2', {textContent: 'Lost blocks, by size and by how they begin'}),
    element('p', {textContent: 'Each rectangle is a lost block with all that only it leads to, ' +
      'filled as far as the block itself takes it.'}));
  makeTreemap({parent: content, root, value: node => node.bytes, children: node => node.children,
    name: node => node.name, hue: () => 'c1', part: node => node.own / Math.max(1, node.bytes),
    height: 320, text: node => node.name + ': ' + bytes(node.bytes) + ', ' + bytes(node.own) +
      ' of it directly'});
}
content.append(element('h2', {textContent: 'By size'}));
makeTable({parent: content, label: 'sizes', sort: 3, most: 20, columns: [
  {name: 'size', kind: 'number'}, {name: 'blocks', kind: 'number'},
  {name: 'direct', kind: 'number'}, {name: 'bytes', kind: 'bytes'}],
rows: data.sizes.map(row => [...row, row[0] * row[1]])});
content.append(element('h2', {textContent: 'Directly lost, similar blocks together'}));
makeTable({parent: content, label: 'groups', sort: 2, most: 50, columns: [
  {name: 'blocks', kind: 'number'}, {name: 'size', kind: 'number'},
  {name: 'bytes', kind: 'bytes'}, {name: 'hold', kind: 'bytes'},
  {name: 'for example', kind: 'text'}, {name: 'begin with', kind: 'text'},
  ...hasStacks ? [{name: 'allocated by', kind: 'text'}] : []],
rows: data.groups.map(group => [group[0], group[1], group[0] * group[1], group[2], group[3],
  group[4], ...hasStacks ? [group[5]] : []])});
content.append(element('h2', {textContent: 'Each block, with what it holds'}));
makeTable({parent: content, label: 'lost blocks', sort: 2, most: 50, columns: [
  {name: 'address', kind: 'text'}, {name: 'bytes', kind: 'bytes'},
  {name: 'with what it holds', kind: 'bytes'}, {name: 'in blocks', kind: 'number'},
  {name: 'begins with', kind: 'text'}, ...hasStacks ? [{name: 'allocated by', kind: 'text'}] : []],
rows: data.leaks.map(leak => [leak[0], leak[1], leak[1] + leak[2], leak[3] + 1, leak[4],
  ...hasStacks ? [leak[6]] : []])});
