// The page of `cairn advise --html`: advice, memory over time, a treemap by sites, a table of sites.
const content = byId('content'), hues = ['c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7'];
const part = title => {
  const made = element('section', {}, element('h2', {textContent: title}));
  content.append(made);
  return made;
};
const lasting = ns => ns >= 1e9 ? (ns / 1e9).toFixed(1) + ' s' :
  ns >= 1e6 ? (ns / 1e6).toFixed(1) + ' ms' : ns >= 1e3 ? (ns / 1e3).toFixed(1) + ' µs' : ns + ' ns';

function code(text, language) {
  const made = element('pre', {textContent: text, tabIndex: 0});
  made.style.cssText = 'background:var(--raised);border-radius:8px;padding:.6rem;overflow:auto';
  return element('details', {}, element('summary', {textContent: 'the change in ' + language}),
    made);
}

const advice = part('Advice');
advice.id = 'advice';
if (!data.advice.length)
  advice.append(element('p', {textContent: 'Nothing to gain.'}));
data.advice.forEach((one, place) => {
  const box = element('article', {}, element('h3', {
    textContent: place + 1 + '. ' + one.place + ': ' + one.title}));
  box.append(element('p', {textContent: one.evidence}), element('p', {textContent: one.gain}),
    element('details', {}, element('summary', {textContent: 'where'}),
      element('pre', {textContent: one.stack.join('\n')})),
    code(one.snippets[0], 'C'), code(one.snippets[1], 'C++'));
  advice.append(box);
});

const largest = data.sites.filter(site => site.live.some(value => value > 0)).slice(0, data.lines);
// Memory is 0 at the start. Each further point is the maximum since the previous point.
makeTimeline({parent: part('Live memory over time, by site'), times: [0, ...data.times],
  label: 'live memory over time',
  series: [{name: 'all', values: [0, ...data.all], hue: 'text'}, ...largest.map((site, place) => ({
    name: site.name, values: [0, ...site.live], hue: hues[place % hues.length]}))]});

const tree = {name: 'the peak', children: data.sites.filter(site => site.peak > 0)};
const held = tree.children.reduce((sum, site) => sum + site.peak, 0);
makeTreemap({parent: part('What lives at the peak'), root: tree, name: node => node.name,
  value: node => node.children ? held : node.peak, children: node => node.children || [],
  text: node => node.name + ': ' + bytes(node.children ? held : node.peak) + ', ' +
    percent(node.children ? held : node.peak, data.peak) + ' of the peak' +
    (node.verdict ? ', ' + node.verdict : ''),
  hue: node => hues[Math.max(0, data.sites.indexOf(node)) % hues.length], part: () => 1});

const lives = part('Lifetimes');
const said = element('div', {className: 'said'});
said.setAttribute('aria-live', 'polite');
function life(site) {
  const total = site.lives.reduce((sum, count) => sum + count, 0);
  const steps = site.lives.map((count, step) => [count, step]).filter(([count]) => count);
  return total === 0 ? site.name + ': none was freed' : site.name + ': ' + steps.map(
    ([count, step]) => percent(count, total) + ' below ' + lasting(2 ** step)).join(', ');
}
const row = site => [site.name, site.verdict, site.allocations, site.allocated, site.peak, site.end,
  site.life_ns, site.life_bytes];
makeTable({parent: lives, label: 'sites', sort: 4, rows: data.sites.map(row), columns: [
  {name: 'site', kind: 'text'}, {name: 'advice', kind: 'text'},
  {name: 'allocations', kind: 'number'}, {name: 'allocated', kind: 'bytes'},
  {name: 'at the peak', kind: 'bytes'}, {name: 'at the end', kind: 'bytes'},
  {name: 'half live less than', kind: 'number', show: lasting},
  {name: 'or less than so much allocated', kind: 'bytes'}],
  pick: chosen => {
    const site = data.sites.find(one => one.name === chosen[0] && one.allocations === chosen[2]);
    said.textContent = life(site) + '. ' + site.stack.join(' ← ');
  }});
lives.append(said);
