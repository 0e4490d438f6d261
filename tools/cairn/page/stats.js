// The page of `cairn stats --html`. tools/cairn/stats_record.py fills `data`.
const content = byId('content'), last = data.times.length - 1;
const HUES = ['c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7'];
const lines = (rows, hidden = []) => rows.map(([name, values], place) => ({name, values,
  hue: HUES[place % HUES.length], hidden: hidden.includes(name)}));
const title = text => content.append(element('h2', {textContent: text}));
const sizeName = size => size === 'larger' ? 'larger blocks' : size + '-byte blocks';

const cards = element('div', {className: 'cards'});
for (const [name, values] of data.words)
  cards.append(element('div', {}, element('span', {textContent: name}), bytes(values[last])));
content.append(cards);
title('What it takes');
makeTimeline({parent: content, times: data.times, label: 'bytes over time',
  series: lines(data.words, ['mapped', 'retained', 'metadata', 'kept'])});
title('Live bytes of the sizes that changed most');
makeTimeline({parent: content, times: data.times, label: 'sizes over time',
  series: lines(data.sizes.map(([size, values]) => [sizeName(size), values]))});
title('Live blocks');
makeTimeline({parent: content, times: data.times, label: 'blocks over time', show: number,
  height: 200, series: lines([['blocks', data.blocks], ['thread heaps', data.heaps]],
    ['thread heaps'])});
title('From the first look to the last');
const change = (name, values) => [name, values[0], Math.max(...values), values[last],
  values[last] - values[0]];
const rows = (kind, list) => makeTable({parent: content, label: kind, sort: 4, rows:
  list.map(([name, values]) => change(name, values)), columns: [{name: 'what', kind: 'text'},
  ...['first', 'most', 'last', 'change'].map(name => ({name, kind}))]});
rows('bytes', [...data.words, ...data.sizes.map(([size, values]) => [sizeName(size), values])]);
rows('number', [['blocks', data.blocks], ['thread heaps', data.heaps], ...data.counters]);
