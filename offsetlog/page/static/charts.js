// Small pictures: a curve over time, a bar, and a position on a partition's scale.

import { clock, h } from './dom.js';

/** Points of a group's lag since the page was opened: bounded, and evenly thinned when full. */
export class Series {
  constructor(limit = 400) {
    this.limit = limit;
    this.points = [];
    this.every = 1;
    this.count = 0;
  }

  add(at, values) {
    const last = this.points.at(-1);
    if (last && at <= last.at) return;
    this.count += 1;
    if (last && !last.kept) this.points.pop();
    // The newest point is always there; of the others every `every`th stays.
    this.points.push({ at, ...values, kept: this.count % this.every === 0 });
    if (this.points.length > this.limit) {
      this.points = this.points.filter((_, i) => i % 2 === 0 || i === this.points.length - 1);
      this.every *= 2;
    }
  }
}

const round = value => Math.round(value * 10) / 10;

function path(points, x, y) {
  return points.map((point, i) => `${i ? 'L' : 'M'}${round(x(point))} ${round(y(point))}`).join('');
}

/** A curve with its greatest value and its times. */
export function curve(points, measure, show, { label }) {
  // As wide as the page, so that its text is as large as all other text.
  const width = Math.min(1400, Math.max(300, document.getElementById('main').clientWidth - 32));
  const height = 170;
  const known = points.filter(point => typeof point[measure] === 'number');
  if (known.length < 2) {
    const unknown = points.length > 1 && !known.length;
    return h('p', { class: 'empty' }, unknown
      ? 'The lag is not known before the first commit.'
      : 'The curve begins with the second look, in a few seconds.');
  }
  const [first, last] = [known[0], known.at(-1)];
  const most = Math.max(...known.map(point => point[measure]), 0);
  const top = most || 1;
  const [left, right, above, below] = [8, 8, 22, 22];
  const span = last.at - first.at || 1;
  const x = point => left + ((width - left - right) * (point.at - first.at)) / span;
  const y = point => above + (height - above - below) * (1 - point[measure] / top);
  const base = height - below;
  const line = path(known, x, y);
  const text = `${label}: from ${show(first[measure])} at ${clock(first.at)} to ` +
    `${show(last[measure])} at ${clock(last.at)}, at most ${show(most)}.`;
  return h('svg', { class: 'curve', viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': text },
    h('line', { class: 'axis', x1: left, x2: width - right, y1: base, y2: base }),
    h('line', { class: 'grid', x1: left, x2: width - right, y1: above, y2: above }),
    h('path', { class: 'area', d: `${line}L${round(x(last))} ${base}L${round(x(first))} ${base}Z` }),
    h('path', { class: 'stroke', d: line }),
    h('circle', { class: 'dot', cx: round(x(last)), cy: round(y(last)), r: 3.5 }),
    h('text', { x: left, y: above - 7 }, `at most ${show(most)}`),
    h('text', { x: left, y: height - 6 }, clock(first.at)),
    h('text', { x: width - right, y: height - 6, 'text-anchor': 'end' }, clock(last.at)));
}

/** The same, as small as a word. */
export function sparkline(points, measure, label) {
  const known = points.filter(point => typeof point[measure] === 'number');
  const [width, height] = [96, 22];
  const props = { class: 'spark', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img' };
  if (known.length < 2) return h('svg', { ...props, 'aria-label': `${label}: no curve yet` });
  const span = known.at(-1).at - known[0].at || 1;
  const most = Math.max(...known.map(point => point[measure])) || 1;
  const x = point => 1 + ((width - 4) * (point.at - known[0].at)) / span;
  const y = point => height - 2 - ((height - 4) * point[measure]) / most;
  return h('svg', { ...props, 'aria-label': `${label}, from ${known[0][measure]} to ${known.at(-1)[measure]}` },
    h('path', { class: 'stroke', d: path(known, x, y) }));
}

export function bar(value, greatest, label) {
  const width = greatest > 0 ? Math.max(value > 0 ? 1 : 0, Math.round((120 * value) / greatest)) : 0;
  return h('svg', { class: 'bar', viewBox: '0 0 120 10', width: 120, height: 10, role: 'img', 'aria-label': label },
    h('rect', { class: 'track', width: 120, height: 10, rx: 2 }),
    h('rect', { class: 'fill', width, height: 10, rx: 2 }));
}

/** Where a position lies between a partition's start and end. */
export function place(position, start, end, label) {
  const share = end > start ? (Math.min(Math.max(position, start), end) - start) / (end - start) : 1;
  const at = round(120 * share);
  return h('svg', { class: 'bar', viewBox: '0 0 120 10', width: 120, height: 10, role: 'img', 'aria-label': label },
    h('rect', { class: 'behind', width: 120, height: 10, rx: 2 }),
    h('rect', { class: 'fill', width: at, height: 10, rx: 2 }));
}

/** A partition's log to scale, with the position before and after a reset. */
export function move({ before, after, start, end }, label) {
  const [width, height, edge] = [360, 46, 8];
  const x = offset => {
    const share = end > start ? (Math.min(Math.max(offset, start), end) - start) / (end - start) : 1;
    return round(edge + (width - 2 * edge) * share);
  };
  const y = 18;
  const parts = [
    h('rect', { class: 'track', x: edge, y, width: width - 2 * edge, height: 10, rx: 2 }),
  ];
  const to = x(after);
  if (before !== null) {
    const from = x(before);
    const kind = after < before ? 'again' : 'skipped';
    parts.push(h('rect', { class: kind, x: Math.min(from, to), y, width: Math.max(Math.abs(to - from), after === before ? 0 : 1), height: 10 }));
    parts.push(h('path', { class: 'before', d: `M${from} ${y}l-5 -8h10z` }));
  }
  parts.push(h('path', { class: 'after', d: `M${to} ${y + 10}l-6 10h12z` }));
  return h('svg', { class: 'move', viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label }, parts);
}
