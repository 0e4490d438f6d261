// The page of `cairn profile --html`: a flame graph and a table of its functions. A node is [name,
// bytes in use, bytes allocated, blocks in use, blocks allocated, children].
const names = data.names, content = byId('content');
let live = data.root[1] > 0;
const value = node => live ? node[1] : node[2], blocks = node => live ? node[3] : node[4];

const flame = makeFlame({parent: content, root: data.root, name: node => names[node[0]], value,
  children: node => node[5],
  text: node => names[node[0]] + ': ' + bytes(value(node)) + ', ' +
    percent(value(node), value(data.root)) + ', some ' + number(blocks(node)) + ' blocks'});

function functions() {
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
  return [...sums.values()].filter(row => row[2] > 0);
}
const table = makeTable({parent: content, rows: functions(), label: 'functions', columns: [
  {name: 'function', kind: 'text'}, {name: 'by itself', kind: 'bytes'},
  {name: 'with what it calls', kind: 'bytes'}, {name: 'blocks', kind: 'number'}]});

function turn(to) {
  live = to;
  flame.out(false);
  table.show(functions());
}
choices(byId('bar'), {'in use': () => turn(true), 'allocated': () => turn(false)},
  live ? 'in use' : 'allocated');
const out = element('button', {textContent: 'all of it'});
out.addEventListener('click', () => flame.out(true));
byId('bar').append(out);
