// Making and patching elements, and showing numbers, times and stored text.
// Text only ever becomes text nodes and attributes of a fixed list: nothing stored is HTML.

const SVG = 'http://www.w3.org/2000/svg';
const HANDLERS = ['onclick', 'onchange', 'oninput', 'onsubmit', 'onkeydown', 'ontoggle'];
const SHAPES = new Set(['svg', 'g', 'rect', 'path', 'line', 'polyline', 'circle', 'text', 'title']);

/** An element. Handlers are functions; false and null leave an attribute or a child out. */
export function h(tag, props = {}, ...children) {
  const shape = SHAPES.has(tag);
  const element = shape ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (HANDLERS.includes(name)) element[name] = value;
    else if (name.startsWith('on') || name === 'style') throw new Error(`no attribute ${name}`);
    else if (name === 'href' && !/^(#|api\/)/.test(value)) throw new Error('no such link');
    else element.setAttribute(name, value === true ? '' : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : printable(String(child)));
  }
}

/** Make `old` like `fresh`, in place: what has focus, is scrolled, open or filled in stays so. */
export function patch(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  const keep = old.nodeName === 'DETAILS' ? ['open'] : [];
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !keep.includes(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !keep.includes(name)) old.setAttribute(name, value);
  }
  for (const name of HANDLERS) if (old[name] !== fresh[name]) old[name] = fresh[name];
  patchChildren(old, [...fresh.childNodes]);
}

export function patchChildren(parent, fresh) {
  const keyed = new Map();
  for (const child of parent.childNodes) if (child.dataset?.key) keyed.set(child.dataset.key, child);
  let at = parent.firstChild;
  for (const next of fresh) {
    const key = next.dataset?.key;
    let mine = key ? keyed.get(key) : at?.dataset?.key ? null : at;
    if (mine && mine.nodeName === next.nodeName) {
      if (mine === at) at = at.nextSibling;
      else parent.insertBefore(mine, at);
      patch(mine, next);
    } else {
      parent.insertBefore(next, at);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

// --- stored text -------------------------------------------------------------------------------

const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;

function escaped(char) {
  const code = char.codePointAt(0);
  const short = { 9: '\\t', 10: '\\n', 13: '\\r' }[code];
  if (short) return short;
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, '0')}`;
  if (code < 0x10000) return `\\u${code.toString(16).padStart(4, '0')}`;
  return `\\U${code.toString(16).padStart(8, '0')}`;
}

/** The text with an escape in place of what can't be printed, or turns the direction of text. */
export function printable(text) {
  return text.replace(UNPRINTABLE, escaped);
}

/** The same, with its lines and tabs as they are. */
export function printableLines(text) {
  return text.replace(UNPRINTABLE, char => (char === '\n' || char === '\t' ? char : escaped(char)));
}

/** A node of text whose lines stay. */
export function lines(text) {
  return document.createTextNode(printableLines(text));
}

// --- numbers and times -------------------------------------------------------------------------

const whole = new Intl.NumberFormat('en');
const tenths = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

export function number(value) {
  return value === null || value === undefined ? '–' : whole.format(value);
}

export function count(value, word) {
  return `${number(value)} ${word}${value === 1 ? '' : 's'}`;
}

export function bytes(value) {
  if (value === null || value === undefined) return '–';
  if (value < 1024) return `${whole.format(value)} B`;
  let unit = -1;
  do {
    value /= 1024;
    unit += 1;
  } while (value >= 1023.95 && unit < 5);
  return `${tenths.format(value)} ${['KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'][unit]}`;
}

export function rate(value) {
  if (value === null || value === undefined) return '–';
  return value >= 100 ? whole.format(Math.round(value)) : tenths.format(value);
}

/** 4 s, 12 min, 3.5 h, 2 d. */
export function seconds(value) {
  if (value === null || value === undefined) return '–';
  if (value < 60) return `${tenths.format(value)} s`;
  if (value < 3600) return `${tenths.format(value / 60)} min`;
  if (value < 86400) return `${tenths.format(value / 3600)} h`;
  return `${tenths.format(value / 86400)} d`;
}

const two = value => String(value).padStart(2, '0');

/** A moment in the browser's own zone, to the millisecond; its title is the same in UTC. */
export function moment(ms) {
  const date = new Date(ms);
  if (ms === null || ms === undefined || Number.isNaN(date.getTime())) return h('span', {}, '–');
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  const text = `${day} ${time}.${String(date.getMilliseconds()).padStart(3, '0')}`;
  return h('time', { datetime: date.toISOString(), title: date.toISOString() }, text);
}

export function clock(ms) {
  const date = new Date(ms);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

// --- tables ------------------------------------------------------------------------------------

/** Columns: {name, text, number, sort}. A sortable one has a button in its head. */
export function table(caption, columns, rows, { sort, onsort, wide } = {}) {
  const head = columns.map(column => {
    const by = column.sort && sort?.by === column.sort;
    const direction = by ? (sort.down ? 'descending' : 'ascending') : null;
    const name = column.sort
      ? h('button', { type: 'button', class: 'sort', onclick: () => onsort(column.sort) },
        column.name, by ? (sort.down ? ' ↓' : ' ↑') : '')
      : column.name;
    return h('th', { scope: 'col', class: column.number && 'number', 'aria-sort': direction }, name);
  });
  const inner = h('table', { class: wide && 'wide' },
    h('caption', { class: 'hidden-text' }, caption),
    h('thead', {}, h('tr', {}, head)),
    h('tbody', {}, rows));
  // Focusable, since it may scroll and its cells need not have anything that takes the focus.
  return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption }, inner);
}

export function row(key, cells, columns, props = {}) {
  return h('tr', { 'data-key': key, ...props },
    cells.map((cell, i) => h('td', { class: columns[i]?.number && 'number', 'data-name': columns[i]?.name },
      cell)));
}

export function sorted(rows, { by, down }, key) {
  const value = one => key(one, by);
  return [...rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    const order = x === y ? 0 : x === null || x === undefined ? -1 : y === null || y === undefined
      ? 1 : typeof x === 'number' ? x - y : String(x).localeCompare(String(y));
    return down ? -order : order;
  });
}

export function tabs(label, items, current) {
  return h('nav', { class: 'tabs', 'aria-label': label },
    items.map(([name, href]) =>
      h('a', { href, 'aria-current': name === current ? 'page' : null }, name)));
}

export function facts(pairs) {
  return h('dl', { class: 'facts' }, pairs.filter(Boolean).map(([name, value, note]) =>
    h('div', {}, h('dt', {}, name), h('dd', {}, value), note ? h('dd', { class: 'note' }, note) : null)));
}

export function empty(text) {
  return h('p', { class: 'empty' }, text);
}

export function state(name) {
  const kind = { Stable: 'good', Empty: 'plain', Dead: 'plain', PreparingRebalance: 'warn' }[name];
  return h('span', { class: `state ${kind ?? 'plain'}` }, name);
}
