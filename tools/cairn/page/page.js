// Functions that all pages share: data, numbers as text, elements, colours, search. html_page.py
// adds this file to each page.
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const byId = id => document.getElementById(id);

function bytes(n) {
  for (const unit of ['B', 'KiB', 'MiB', 'GiB', 'TiB']) {
    if (Math.abs(n) < 1024 || unit === 'TiB')
      return (unit === 'B' ? Math.round(n) : n.toFixed(1)) + ' ' + unit;
    n /= 1024;
  }
}
const number = n => String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, '\u202f');
const percent = (part, whole) => (100 * part / Math.max(1, whole)).toFixed(1) + ' %';

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// Returns the value of a colour of page.css, such as 'c0' or 'text'.
const colour = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name);

// Calls draw at once, after a change of the width, and after a switch between light and dark.
function drawn(canvas, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (canvas.clientWidth !== width) { width = canvas.clientWidth; draw(); }
  }).observe(canvas);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  draw();
}

// Returns a drawing context for a canvas of `width` by `height` CSS pixels.
function pen(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.height = height + 'px';
  const context = canvas.getContext('2d');
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = '12px system-ui, sans-serif';
  context.textBaseline = 'middle';
  return context;
}

// Shortens a text to the room that it has. An address keeps its end, which differs most between
// neighbours; a name keeps its beginning. Returns nothing if fewer than three letters fit.
function fitted(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  const whole = text.startsWith('0x') ? text.slice(2) : text;
  for (let left = whole.length - 1; left >= 3; left--) {
    const shorter = text.startsWith('0x') ? '…' + whole.slice(-left) : whole.slice(0, left) + '…';
    if (context.measureText(shorter).width <= room) return shorter;
  }
  return '';
}

// The search field: `wanted` is the text that the reader searches for, or null.
let wanted = null;
const searches = [], backs = [];
const onSearch = then => { searches.push(then); };
const onBack = then => { backs.push(then); }; // Escape
const isFound = text => wanted !== null && wanted.test(text);
function search(text) {
  byId('search').value = text;
  try { wanted = text ? new RegExp(text, 'i') : null; } catch { wanted = null; }
  searches.forEach(then => then());
}
if (byId('search')) byId('search').addEventListener('input', () => search(byId('search').value));
document.addEventListener('keydown', event => {
  if (event.key === '/' && byId('search') && event.target !== byId('search')) {
    event.preventDefault();
    byId('search').focus();
  }
  if (event.key === 'Escape') {
    if (byId('search')) search('');
    backs.forEach(then => then());
  }
});

// Creates buttons of which one is pressed: {label: its function}. Returns a function that presses
// one.
function choices(parent, words, first) {
  const made = Object.entries(words).map(([word, then]) => {
    const button = element('button', {textContent: word});
    button.addEventListener('click', () => press(word));
    parent.append(button);
    return {word, then, button};
  });
  function press(word) {
    made.forEach(one => one.button.setAttribute('aria-pressed', one.word === word));
    made.find(one => one.word === word).then();
  }
  made.forEach(one => one.button.setAttribute('aria-pressed', one.word === first));
  return press;
}
