// JSON as a folded tree. Numbers and strings are shown as they are written: nothing is rounded.

import { h, lines } from './dom.js';

const TOKEN = /\s*(?:([{}[\],:])|("(?:[^"\\\u0000-\u001f]|\\.)*")|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null))/y;
const MAX_NODES = 3000;
const MAX_DEPTH = 100;
const OPEN_DEPTH = 3;

class NotJson extends Error {}

class Parser {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.nodes = 0;
    this.next();
  }

  next() {
    TOKEN.lastIndex = this.at;
    const match = TOKEN.exec(this.text);
    if (!match) {
      if (this.text.slice(this.at).trim()) throw new NotJson();
      this.token = null;
      return;
    }
    this.at = TOKEN.lastIndex;
    this.token = match[1] ?? match[2] ?? match[3];
    this.kind = match[1] ? 'mark' : match[2] ? 'string' : 'word';
  }

  take(mark) {
    if (this.kind !== 'mark' || this.token !== mark) throw new NotJson();
    this.next();
  }

  is(mark) {
    return this.kind === 'mark' && this.token === mark;
  }

  value(depth) {
    this.nodes += 1;
    if (this.token === null || depth > MAX_DEPTH || this.nodes > MAX_NODES) throw new NotJson();
    if (this.is('{')) return this.several(depth, '{', '}');
    if (this.is('[')) return this.several(depth, '[', ']');
    if (this.kind === 'mark') throw new NotJson();
    const kind = this.kind === 'string' ? 'string' : /^[tfn]/.test(this.token) ? 'word' : 'digits';
    const node = h('span', { class: `json-${kind}` }, this.token);
    this.next();
    return node;
  }

  several(depth, open, close) {
    this.take(open);
    const items = [];
    while (!this.is(close)) {
      if (items.length) this.take(',');
      let key = null;
      if (open === '{') {
        if (this.kind !== 'string') throw new NotJson();
        key = h('span', { class: 'json-key' }, this.token);
        this.next();
        this.take(':');
      }
      items.push(h('li', {}, key, key ? ': ' : null, this.value(depth + 1)));
    }
    this.take(close);
    if (!items.length) return h('span', {}, open + close);
    const count = `${items.length} ${open === '{' ? 'field' : 'item'}${items.length === 1 ? '' : 's'}`;
    return h('details', { open: depth < OPEN_DEPTH, class: 'json' },
      h('summary', {}, open, h('span', { class: 'note' }, ` ${count} `), close), h('ul', {}, items));
  }
}

/** The text as a tree; null if it is not JSON, or too much of it. */
export function jsonTree(text) {
  try {
    const parser = new Parser(text);
    const tree = parser.value(0);
    return parser.token === null ? tree : null;
  } catch (error) {
    if (error instanceof NotJson || error instanceof RangeError) return null;
    throw error;
  }
}

export function isJson(text) {
  return /^\s*[[{]/.test(text) && jsonTree(text) !== null;
}

/** Bytes as hexadecimal digits, sixteen a line, with what of them is ASCII. */
export function hex(data, limit = 65536) {
  const out = [];
  const shown = data.subarray(0, limit);
  for (let at = 0; at < shown.length; at += 16) {
    const part = [...shown.subarray(at, at + 16)];
    const digits = part.map(byte => byte.toString(16).padStart(2, '0')).join(' ').padEnd(47);
    const text = part.map(byte => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : '.')).join('');
    out.push(`${at.toString(16).padStart(6, '0')}  ${digits}  ${text}`);
  }
  return lines(out.join('\n'));
}
