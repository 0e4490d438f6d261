// A tree as nested rectangles on a canvas. Each leaf is filled from below by its part in use.
//
// root: a node; value, children, name, text (its description), hue (name of a colour), part (the
// part of a leaf that is in use, 0 to 1): functions of a node. Returns {show(root)}.
// Layout: Bruls, Huizing, van Wijk: Squarified Treemaps, 2000.
function makeTreemap({parent, root, value, children, name, text, hue, part, height = 420}) {
  const HEAD = 18, canvas = element('canvas', {tabIndex: 0});
  const crumbs = element('div', {className: 'bar crumbs'});
  const said = element('div', {className: 'said'});
  said.setAttribute('aria-live', 'polite');
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', 'treemap: arrow keys go from part to part, Enter goes in');
  parent.append(crumbs, canvas, said);
  let trail = [root], boxes = [], here = null;

  function worst(row, sum, side) {
    const square = sum * sum, edge = side * side;
    return Math.max(edge * row[0] / square, square / (edge * row[row.length - 1]));
  }
  // Calls seen(node, x, y, width, height) for each node.
  function squarify(nodes, x, y, width, height, seen) {
    const total = nodes.reduce((sum, node) => sum + value(node), 0);
    const scale = width * height / Math.max(1, total);
    const left = nodes.filter(node => value(node) * scale > 0.5)
      .sort((a, b) => value(b) - value(a));
    while (left.length && width > 0.5 && height > 0.5) {
      const side = Math.min(width, height), row = [];
      let sum = 0;
      while (left.length) {
        const area = value(left[0]) * scale;
        if (row.length && worst(row, sum, side) < worst([...row, area], sum + area, side)) break;
        row.push(area);
        sum += area;
        seen.next.push(left.shift());
      }
      const across = sum / side;
      let at = 0;
      row.forEach(area => {
        const node = seen.next.shift(), along = area / across;
        if (width >= height) seen(node, x, y + at, across, along);
        else seen(node, x + at, y, along, across);
        at += along;
      });
      if (width >= height) { x += across; width -= across; } else { y += across; height -= across; }
    }
  }
  function layout(node, path, x, y, width, height) {
    const seen = (child, left, top, wide, high) => {
      const below = [...path, child];
      boxes.push({node: child, path: below, x: left, y: top, width: wide, height: high,
        inner: children(child).length > 0 && wide > 40 && high > HEAD + 14});
      if (boxes[boxes.length - 1].inner)
        layout(child, below, left + 2, top + HEAD, wide - 4, high - HEAD - 2);
    };
    seen.next = [];
    squarify([...children(node)], x, y, width, height, seen);
  }
  function paint(context, box) {
    const {node, x, y, width, height} = box, wide = Math.max(0, width - 1);
    const high = Math.max(0, height - 1);
    const found = isFound(name(node));
    context.fillStyle = box.inner ? colour('raised') : colour('free');
    context.fillRect(x, y, wide, high);
    if (!box.inner) {
      const full = high * Math.min(1, Math.max(0, part(node)));
      context.fillStyle = found ? colour('mark') : colour(hue(node));
      context.fillRect(x, y + high - full, wide, full);
    }
    if (found || box === here) {
      context.strokeStyle = box === here ? colour('text') : colour('mark');
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, Math.max(0, wide - 2), Math.max(0, high - 2));
    }
    if (wide > 34 && high > 14) label(context, box, wide, high);
  }
  // Draws words within the box. Words on the filled part have another colour than words above it,
  // for each letter, because the filled part may end in the middle of a line.
  function label(context, {node, x, y, inner}, wide, high) {
    const size = bytes(value(node)), sizeWidth = context.measureText(size).width;
    const isBeside = inner && context.measureText(name(node)).width + sizeWidth + 16 < wide;
    const filled = inner ? 0 : high * Math.min(1, Math.max(0, part(node)));
    for (const [from, to, hue] of [[0, high - filled, 'text'], [high - filled, high, 'held']]) {
      context.save();
      context.beginPath();
      context.rect(x, y + from, wide, to - from);
      context.clip();
      context.fillStyle = colour(hue);
      context.fillText(fitted(context, name(node), wide - 8), x + 4, y + 9);
      if (!inner && high > 30 && sizeWidth < wide - 6)
        context.fillText(size, x + 4, y + 24);
      if (isBeside) {
        context.fillStyle = colour('soft');
        context.fillText(size, x + wide - sizeWidth - 4, y + 9);
      }
      context.restore();
    }
  }
  function draw() {
    const width = canvas.clientWidth, context = pen(canvas, width, height);
    const at = here && here.node;
    boxes = [];
    layout(trail[trail.length - 1], trail, 0, 0, width, height);
    here = boxes.find(box => box.node === at) || null;
    boxes.forEach(box => paint(context, box));
  }
  function zoom(path) {
    trail = path;
    here = null;
    crumbs.replaceChildren(...trail.map((node, depth) => {
      const button = element('button', {textContent: name(node) + ' · ' + bytes(value(node))});
      button.addEventListener('click', () => { zoom(trail.slice(0, depth + 1)); canvas.focus(); });
      button.setAttribute('aria-pressed', depth + 1 === trail.length);
      return button;
    }));
    said.textContent = text(trail[trail.length - 1]);
    draw();
  }
  function select(box) {
    if (box === here) return;
    here = box;
    said.textContent = box ? text(box.node) + ' — ' +
      box.path.slice(1).map(name).join(' › ') : text(trail[trail.length - 1]);
    draw();
  }
  // Opens the child that contains the part.
  function enter(box) {
    const path = box.path.slice(0, trail.length + 1);
    if (path.length > trail.length && children(path[path.length - 1]).length) zoom(path);
  }
  function at(event) {
    const x = event.offsetX, y = event.offsetY;
    return boxes.findLast(box => x >= box.x && x < box.x + box.width && y >= box.y &&
      y < box.y + box.height) || null;
  }
  // Finds the nearest leaf in a direction.
  function beside(key) {
    const leaves = boxes.filter(box => !box.inner && box !== here);
    if (!here) return leaves[0] || null;
    const [dx, dy] = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1],
      ArrowDown: [0, 1]}[key];
    const middle = box => [box.x + box.width / 2, box.y + box.height / 2];
    const [x, y] = middle(here);
    let best = null, least = Infinity;
    for (const box of leaves) {
      const [right, down] = middle(box), along = (right - x) * dx + (down - y) * dy;
      const across = Math.abs((right - x) * dy) + Math.abs((down - y) * dx);
      if (along > 0.5 && along + 2 * across < least) { least = along + 2 * across; best = box; }
    }
    return best || here;
  }
  canvas.addEventListener('mousemove', event => select(at(event)));
  canvas.addEventListener('mouseleave', () => select(null));
  canvas.addEventListener('click', event => { const box = at(event); if (box) enter(box); });
  canvas.addEventListener('focus', () => { if (!here) select(beside('')); });
  canvas.addEventListener('keydown', event => {
    if (event.key.startsWith('Arrow')) select(beside(event.key));
    else if (event.key === 'Enter' && here) { enter(here); select(beside('')); }
    else if (event.key === 'Backspace' && trail.length > 1) zoom(trail.slice(0, -1));
    else return;
    event.preventDefault();
  });
  onSearch(draw);
  onBack(() => zoom([trail[0]]));
  drawn(canvas, draw);
  zoom([root]);
  return {show(other) { zoom([other]); }, trail: () => trail};
}
