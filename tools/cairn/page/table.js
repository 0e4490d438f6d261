// A table that can be sorted by any column and shows only the rows that the reader searches for.
//
// columns: [{name, kind: 'text' | 'bytes' | 'number' | 'percent', show: value => text}]; rows:
// arrays of values in the order of the columns; most: the number of rows shown at first; pick:
// called with a row that is selected, if given.
// Returns {show(rows), rows()}.
function makeTable({parent, columns, rows, sort = 1, most = 500, pick = null, label = ''}) {
  const shows = {bytes, number, percent: value => (100 * value).toFixed(0) + ' %', text: String};
  const body = element('tbody'), heads = columns.map((column, place) => {
    const button = element('button', {textContent: column.name});
    button.addEventListener('click', () => {
      up = place === sort ? !up : column.kind === 'text';
      sort = place;
      draw();
    });
    return element('th', {scope: 'col', className: column.kind}, button);
  });
  const rest = element('button', {hidden: true});
  rest.addEventListener('click', () => { most += 5000; draw(); });
  let up = columns[sort].kind === 'text', shown = [];
  const text = (row, place) => row[place] === null ? '' :
    (columns[place].show || shows[columns[place].kind])(row[place]);
  function compare(a, b) {
    const order = columns[sort].kind === 'text' ? String(a[sort]).localeCompare(String(b[sort])) :
      a[sort] - b[sort];
    return up ? order : -order;
  }
  function line(row) {
    const made = element('tr', {}, ...columns.map((column, place) =>
      element('td', {className: column.kind, textContent: text(row, place)})));
    if (pick) {
      made.tabIndex = 0;
      made.addEventListener('click', () => pick(row));
      made.addEventListener('keydown', event => {
        const next = {ArrowDown: made.nextElementSibling,
          ArrowUp: made.previousElementSibling}[event.key];
        if (event.key === 'Enter') pick(row);
        else if (next) { event.preventDefault(); next.focus(); }
      });
    }
    return made;
  }
  function draw() {
    shown = rows.filter(row => !wanted || columns.some((column, place) =>
      column.kind === 'text' && isFound(text(row, place)))).sort(compare);
    body.replaceChildren(...shown.slice(0, most).map(line));
    heads.forEach((head, place) => head.setAttribute('aria-sort',
      place !== sort ? 'none' : up ? 'ascending' : 'descending'));
    rest.hidden = shown.length <= most;
    rest.textContent = 'show ' + number(Math.min(5000, shown.length - most)) + ' more';
  }
  const table = element('table', {}, element('thead', {}, element('tr', {}, ...heads)), body);
  if (label) table.setAttribute('aria-label', label);
  parent.append(element('div', {className: 'wide'}, table), rest);
  onSearch(draw);
  draw();
  return {show(others) { rows = others; draw(); }, rows: () => shown};
}
