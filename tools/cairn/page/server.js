// The page of `cairn run --load --html`. tools/cairn/server_report.py fills `data`.
const content = byId('content'), HUES = ['c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7'];
const hueOf = place => HUES[place % HUES.length];
const title = text => content.append(element('h2', {textContent: text}));

title('Memory over time');
makeTimeline({parent: content, times: data.times, label: 'memory over time', height: 360,
  series: data.sides.map(([name, values], place) => ({name, values, hue: hueOf(place)}))});
title('Figures');
const head = element('tr', {}, element('th', {scope: 'col', className: 'text'}),
  ...data.sides.map(([name]) => element('th', {scope: 'col', textContent: name})));
const body = element('tbody', {}, ...data.rows.map(([name, ...values]) => element('tr', {},
  element('th', {scope: 'row', className: 'text', textContent: name}),
  ...values.map(value => element('td', {textContent: value})))));
const figures = element('table', {}, element('thead', {}, head), body);
figures.setAttribute('aria-label', 'figures');
content.append(element('div', {className: 'wide'}, figures));
