// An address map on a canvas: a row of cells that stand for `cellBytes` bytes each.
//
// parts: [{start: address in hexadecimal, cells: [cell or null]}]; paint: maps a cell to {hue,
// part: 0 to 1}; text: maps a cell to its description.
function makeCells({parent, parts, cellBytes, paint, text}) {
  const SIDE = 11, LINE = 16, canvas = element('canvas', {tabIndex: 0});
  const said = element('div', {className: 'said'});
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', 'map of addresses: arrow keys go from cell to cell');
  said.setAttribute('aria-live', 'polite');
  parent.append(canvas, said);
  let places = [], across = 1, here = -1;
  function layout(width) {
    places = [];
    across = Math.max(8, Math.floor(width / SIDE));
    let y = 0;
    const heads = [];
    for (const part of parts) {
      heads.push({y, text: '0x' + part.start});
      y += LINE;
      part.cells.forEach((cell, number) => places.push({cell, part, number,
        x: number % across * SIDE, y: y + Math.floor(number / across) * SIDE}));
      y += Math.ceil(part.cells.length / across) * SIDE + 6;
    }
    return {heads, height: y};
  }
  function draw() {
    const width = canvas.clientWidth, {heads, height} = layout(width);
    const context = pen(canvas, width, Math.max(1, height)), side = SIDE - 1;
    const colours = {}, tint = hue => colours[hue] || (colours[hue] = colour(hue));
    context.fillStyle = colour('soft');
    heads.forEach(head => context.fillText(head.text, 0, head.y + LINE / 2));
    places.forEach((place, number) => {
      if (place.cell) {
        const {hue, part} = paint(place.cell), full = Math.max(part > 0 ? 1 : 0, part * side);
        context.fillStyle = tint('free');
        context.fillRect(place.x, place.y, side, side);
        context.fillStyle = tint(isFound(text(place.cell)) ? 'mark' : hue);
        context.fillRect(place.x, place.y + side - full, side, full);
      }
      if (number === here) {
        context.strokeStyle = tint('text');
        context.lineWidth = 2;
        context.strokeRect(place.x, place.y, side, side);
      }
    });
  }
  function select(number) {
    if (number === here || number < -1 || number >= places.length) return;
    here = number;
    const place = places[number];
    said.textContent = !place ? '' : '0x' + (BigInt('0x' + place.part.start) +
      BigInt(place.number) * BigInt(cellBytes)).toString(16) + ': ' +
      (place.cell ? text(place.cell) : 'nothing of the heap');
    draw();
  }
  canvas.addEventListener('mousemove', event => select(places.findIndex(place =>
    event.offsetX >= place.x && event.offsetX < place.x + SIDE && event.offsetY >= place.y &&
    event.offsetY < place.y + SIDE)));
  canvas.addEventListener('mouseleave', () => select(-1));
  canvas.addEventListener('focus', () => { if (here < 0) select(0); });
  canvas.addEventListener('keydown', event => {
    const step = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across}[event.key];
    if (!step) return;
    event.preventDefault();
    select(Math.min(places.length - 1, Math.max(0, here + step)));
  });
  onSearch(draw);
  drawn(canvas, draw);
}
