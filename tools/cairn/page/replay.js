// The page of `cairn replay --html`: the time and memory of each allocator, and its memory over the
// time of the trace.
const content = byId('content');
const seconds = value => value.toFixed(3) + ' s', decimals = value => value.toFixed(2);
makeTable({parent: content, rows: data.rows, label: 'allocators', columns: [
  {name: 'allocator', kind: 'text'}, {name: 'CPU time in it', kind: 'number', show: seconds},
  {name: 'ns an event', kind: 'number', show: value => value.toFixed(1)},
  {name: 'wall time', kind: 'number', show: seconds}, {name: 'peak memory', kind: 'bytes'},
  {name: 'held over live', kind: 'number', show: decimals}, {name: 'page faults', kind: 'number'}]});
content.append(element('h2', {textContent: 'Memory over the time of the trace'}));
if (data.times.length > 1)
  makeTimeline({parent: content, times: data.times, label: 'memory over time', series: [
    {name: 'live', values: data.live, hue: 'text'},
    ...data.held.map((one, place) => ({...one, hue: 'c' + place % 8}))]});
else
  content.append(element('p', {textContent: 'The trace is too short for a line.'}));
