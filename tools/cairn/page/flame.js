// A flame graph of a tree of frames, callers above.
//
// root: the outermost node; name, value, children: functions of a node; text: maps a node to its
// description. Returns {draw(), out(), root}: call draw after values changed; out shows the whole
// graph again.
function makeFlame({parent, root, name, value, children, text}) {
  const flame = element('div', {id: 'flame', className: 'flame'});
  const said = element('div', {id: 'said', className: 'said'});
  flame.setAttribute('role', 'tree');
  flame.setAttribute('aria-label', 'flame graph');
  said.setAttribute('aria-live', 'polite');
  parent.append(flame, said);
  let path = [root], shown = [];
  function place(node, trail, left, width, depth, above) {
    const title = name(node), box = element('div', {textContent: width > 2 ? title : '',
      className: (title.length % 2 ? 'odd' : '') + (above ? ' above' : '') +
        (isFound(title) ? ' found' : ''), tabIndex: -1, trail,
      box: {left, depth, right: left + width}});
    box.style.cssText =
      'left:' + left + '%;width:calc(' + width + '% - 1px);top:' + depth * 20 + 'px';
    box.setAttribute('role', 'treeitem');
    box.setAttribute('aria-label', text(node));
    box.setAttribute('aria-level', trail.length);
    flame.append(box);
    shown.push(box);
  }
  function grow(node, trail, left, width, depth) {
    let deepest = depth;
    for (const child of children(node)) {
      const part = width * value(child) / Math.max(1, value(node));
      if (part > 0.06) {
        const below = trail.concat([child]);
        place(child, below, left, part, depth, false);
        deepest = Math.max(deepest, grow(child, below, left, part, depth + 1));
      }
      left += part;
    }
    return deepest;
  }
  function draw() {
    flame.replaceChildren();
    shown = [];
    path.forEach((node, depth) =>
      place(node, path.slice(0, depth + 1), 0, 100, depth, depth + 1 < path.length));
    const deepest = grow(path[path.length - 1], path, 0, 100, path.length);
    flame.style.height = (deepest + 1) * 20 + 'px';
    shown[path.length - 1].tabIndex = 0;
  }
  function zoom(trail, focus) {
    path = trail;
    draw();
    if (focus) shown[path.length - 1].focus();
  }
  function tell(event) {
    const trail = event.target.trail;
    if (trail)
      said.textContent = text(trail[trail.length - 1]) + ' — ' +
        trail.slice(1).map(name).join(' › ');
  }
  function next(box, key) {
    const here = box.box, row = shown.filter(other => other.box.depth === here.depth);
    if (key === 'ArrowDown')
      return shown.find(other => other.box.depth === here.depth + 1 &&
        other.box.left >= here.left - 1e-9 && other.box.left < here.right);
    if (key === 'ArrowUp')
      return [...shown].reverse().find(other => other.box.depth === here.depth - 1 &&
        other.box.left <= here.left + 1e-9 && other.box.right > here.left);
    return {ArrowRight: row[row.indexOf(box) + 1], ArrowLeft: row[row.indexOf(box) - 1]}[key];
  }
  flame.addEventListener('click', event => {
    if (event.target.trail) zoom(event.target.trail, true);
  });
  flame.addEventListener('mouseover', tell);
  flame.addEventListener('focusin', tell);
  flame.addEventListener('keydown', event => {
    if (!event.target.trail) return;
    if (event.key === 'Enter' || event.key === ' ') zoom(event.target.trail, true);
    else {
      const other = next(event.target, event.key);
      if (!other) return;
      event.target.tabIndex = -1;
      other.tabIndex = 0;
      other.focus();
    }
    event.preventDefault();
  });
  function find() {
    draw();
    if (!wanted) { said.textContent = ''; return; }
    let sum = 0;
    (function walk(node) {
      if (node !== root && isFound(name(node))) sum += value(node);
      else children(node).forEach(walk);
    })(root);
    said.textContent = 'found: ' + bytes(sum) + ', ' + percent(sum, value(root));
  }
  onSearch(find);
  onBack(() => zoom([root], true));
  draw();
  return {draw, out: focus => zoom([root], focus)};
}
