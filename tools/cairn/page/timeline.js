// Lines over time on a canvas.
//
// times: seconds; series: [{name, values (null: unknown), hue: name of a colour}]; show: converts a
// value to text; marks: [{time, text}]. Dragging, + and - zoom; arrow keys move; Escape shows
// everything.
// Returns {draw(), window()}.
function makeTimeline({parent, times, series, show = bytes, marks = [], height = 300,
                       label = 'over time', least = 0}) {
  const LEFT = 74, BELOW = 24, ABOVE = 8, canvas = element('canvas', {tabIndex: 0});
  const said = element('div', {className: 'said'}), legend = element('div', {className: 'bar'});
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', label + ': arrow keys go along, plus and minus zoom');
  said.setAttribute('aria-live', 'polite');
  parent.append(legend, canvas, said);
  const last = times.length - 1;
  let from = 0, to = last, here = -1, drag = -1;
  const seconds = at => Number((at - times[0]).toFixed(2)) + ' s';
  const is_shown = one => one.button.getAttribute('aria-pressed') === 'true';
  series = series.map(one => {
    const dot = element('i'), button = element('button', {}, dot, one.name);
    dot.style.cssText = 'display:inline-block;width:.8em;height:.8em;border-radius:2px;' +
      'margin-right:.4em;background:var(--' + one.hue + ')';
    button.setAttribute('aria-pressed', !one.hidden);
    button.addEventListener('click', () => {
      button.setAttribute('aria-pressed', button.getAttribute('aria-pressed') !== 'true');
      draw();
    });
    legend.append(button);
    return {...one, button};
  });
  const x = place => LEFT + (canvas.clientWidth - LEFT - 8) *
    (times[place] - times[from]) / Math.max(1e-9, times[to] - times[from]);
  function place(event) {
    let best = from;
    for (let i = from; i <= to; i++)
      if (Math.abs(x(i) - event.offsetX) < Math.abs(x(best) - event.offsetX)) best = i;
    return best;
  }
  function most() {
    let found = least;
    for (const one of series.filter(is_shown))
      for (let i = from; i <= to; i++) found = Math.max(found, one.values[i] || 0);
    return found || 1;
  }
  // The step between grid lines: a power of two for bytes, otherwise 1, 2 or 5 times a power of
  // ten.
  function step(top) {
    if (show === bytes) {
      const power = 2 ** Math.floor(Math.log2(top));
      return top / power > 1.5 ? power / 2 : power / 4;
    }
    const power = 10 ** Math.floor(Math.log10(top));
    return top / power > 5 ? power * 2 : top / power > 2 ? power : power / 2;
  }
  function grid(context, width, top) {
    const y = value => height - BELOW - (height - BELOW - ABOVE) * value / top;
    context.strokeStyle = colour('line');
    context.fillStyle = colour('soft');
    context.lineWidth = 1;
    const each = step(top);
    for (let value = 0; value <= top; value += each) {
      context.beginPath();
      context.moveTo(LEFT, Math.round(y(value)) + .5);
      context.lineTo(width, Math.round(y(value)) + .5);
      context.stroke();
      context.textAlign = 'right';
      context.fillText(show(value), LEFT - 6, y(value));
    }
    const ticks = Math.max(2, Math.min(6, Math.floor(width / 150)));
    for (let i = 0; i <= ticks; i++) {
      const at = times[from] + (times[to] - times[from]) * i / ticks;
      context.textAlign = i === 0 ? 'left' : i === ticks ? 'right' : 'center';
      context.fillText(seconds(at), LEFT + (width - LEFT - 8) * i / ticks, height - BELOW / 2 + 2);
    }
    context.textAlign = 'left';
    return y;
  }
  function line(context, one, y) {
    context.strokeStyle = colour(one.hue);
    context.lineWidth = 2;
    context.beginPath();
    let down = false;
    for (let i = from; i <= to; i++) {
      const value = one.values[i];
      if (value === null || value === undefined) { down = false; continue; }
      if (down) context.lineTo(x(i), y(value)); else context.moveTo(x(i), y(value));
      down = true;
    }
    context.stroke();
    if (here >= from && here <= to && one.values[here] !== null) {
      context.fillStyle = colour(one.hue);
      context.beginPath();
      context.arc(x(here), y(one.values[here]), 3.5, 0, 7);
      context.fill();
    }
  }
  function draw() {
    const width = canvas.clientWidth, context = pen(canvas, width, height);
    const y = grid(context, width, most() * 1.05);
    for (const mark of marks.filter(one => one.time >= times[from] && one.time <= times[to])) {
      const at = LEFT + (width - LEFT - 8) * (mark.time - times[from]) /
        Math.max(1e-9, times[to] - times[from]);
      context.fillStyle = colour('mark');
      context.fillRect(at, ABOVE, 1.5, height - BELOW - ABOVE);
      context.fillText(mark.text, at + 4, ABOVE + 8);
    }
    if (here >= from && here <= to) {
      context.fillStyle = colour('soft');
      context.fillRect(x(here), ABOVE, 1, height - BELOW - ABOVE);
    }
    series.filter(is_shown).forEach(one => line(context, one, y));
    if (drag >= 0 && here !== drag) {
      context.globalAlpha = .2;
      context.fillStyle = colour('pick');
      context.fillRect(Math.min(x(drag), x(here)), ABOVE, Math.abs(x(drag) - x(here)),
        height - BELOW - ABOVE);
      context.globalAlpha = 1;
    }
  }
  function select(at) {
    here = Math.min(to, Math.max(from, at));
    said.textContent = seconds(times[here]) + ': ' + series.filter(is_shown).map(one =>
      one.name + ' ' + (one.values[here] === null ? '?' : show(one.values[here]))).join(', ');
    draw();
  }
  function zoom(first, end) {
    if (end - first < 1) return;
    [from, to] = [Math.max(0, first), Math.min(last, end)];
    draw();
  }
  canvas.addEventListener('mousemove', event => select(place(event)));
  canvas.addEventListener('mousedown', event => { drag = place(event); });
  window.addEventListener('mouseup', () => {
    if (drag < 0) return;
    const [first, end] = [Math.min(drag, here), Math.max(drag, here)];
    drag = -1;
    if (end - first > 1) zoom(first, end); else draw();
  });
  canvas.addEventListener('focus', () => { if (here < 0) select(to); });
  canvas.addEventListener('keydown', event => {
    const half = Math.max(1, Math.round((to - from) / 4));
    if (event.key === 'ArrowLeft') select(here - 1);
    else if (event.key === 'ArrowRight') select(here + 1);
    else if (event.key === 'Home') select(from);
    else if (event.key === 'End') select(to);
    else if (event.key === '+') zoom(Math.max(0, here - half), Math.min(last, here + half));
    else if (event.key === '-') zoom(Math.max(0, from - half), Math.min(last, to + half));
    else return;
    event.preventDefault();
  });
  onBack(() => zoom(0, last));
  drawn(canvas, draw);
  return {draw, window: () => [from, to]};
}
