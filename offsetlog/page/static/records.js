// A topic's records: newest first, by offset, time, key or content; live; as text, JSON and hex.

import { get, topicPath } from './api.js';
import { bytes, clock, empty, h, lines, moment, number, printable } from './dom.js';
import { hex, isJson, jsonTree } from './json.js';

const KEPT = 500;
const LIVE_WAIT = 15;
const IDLE_MS = 600_000;
const PREVIEW = 300;

const DEFAULTS = { partition: '', from: 'newest', at: '', key: '', contains: '', limit: '50' };

export function recordsView(app, name, parameters) {
  const path = `${topicPath(name)}/records`;
  const form = { ...DEFAULTS };
  for (const field of Object.keys(DEFAULTS)) if (parameters.has(field)) form[field] = parameters.get(field);
  const view = {
    records: [], cursor: '', ends: '', scanned: 0, complete: true, partitions: null,
    open: new Map(), live: null, note: '', loaded: false,
  };

  const backwards = () => form.from === 'newest' || form.from === 'before';

  function question() {
    const common = { partition: form.partition, key: form.key, contains: form.contains, limit: form.limit };
    if (!form.key) delete common.key;
    switch (form.from) {
      case 'oldest': return { ...common, order: 'oldest' };
      case 'offset': return { ...common, offset: form.at || '0', order: 'oldest' };
      case 'before': return { ...common, offset: form.at || '0', order: 'newest' };
      case 'time': return { ...common, timestamp: toUtc(form.at), order: 'oldest' };
      default: return { ...common, order: 'newest' };
    }
  }

  async function load(signal) {
    if (view.partitions === null) {
      view.partitions = (await get(topicPath(name), {}, signal)).document.partitions.length;
    }
    if (!view.loaded) {
      const { document } = await get(path, question(), signal);
      take(document);
      view.loaded = true;
      if (parameters.get('live') === 'true') startLive();
    }
    return view;
  }

  function take(document) {
    view.records.push(...document.records);
    Object.assign(view, { cursor: document.cursor, complete: document.complete, scanned: view.scanned + document.scanned });
    view.ends ||= document.ends;
  }

  async function more() {
    const asked = question();
    for (const start of ['offset', 'timestamp']) delete asked[start];
    await app.attempt(async () => {
      const { document } = await get(path, { ...asked, cursor: view.cursor });
      take(document);
      view.records = view.records.slice(-4 * KEPT);
    });
  }

  // --- live --------------------------------------------------------------------------------

  function startLive() {
    stopLive();
    const abort = new AbortController();
    view.live = abort;
    view.note = '';
    follow(abort.signal);
    app.redraw();
  }

  function stopLive(note = '') {
    view.live?.abort();
    view.live = null;
    view.note = note;
    app.redraw();
  }

  async function follow(signal) {
    let cursor = view.ends;
    let pause = 1000;
    while (!signal.aborted) {
      if (app.idleMs() > IDLE_MS) {
        stopLive('Live was paused, since nobody was here for ten minutes.');
        return;
      }
      try {
        const asked = { cursor, order: 'oldest', wait: LIVE_WAIT, limit: KEPT, partition: form.partition };
        if (form.key) asked.key = form.key;
        if (form.contains) asked.contains = form.contains;
        const { document } = await get(path, asked, signal);
        if (signal.aborted) return;
        cursor = document.cursor;
        view.ends = document.ends;
        if (document.records.length) {
          const fresh = document.records.reverse();
          for (const record of fresh) record.isNew = true;
          view.records = [...fresh, ...view.records].slice(0, KEPT);
        }
        app.reached();
        app.redraw();
        pause = 1000;
        // A busy topic is looked at once a second, which is as fast as anybody reads.
        await sleep(document.records.length ? 1000 : 100, signal);
      } catch (error) {
        if (signal.aborted) return;
        app.failed(error);
        await sleep(pause, signal);
        pause = Math.min(30_000, 2 * pause);
      }
    }
  }

  // --- drawing -----------------------------------------------------------------------------

  function show(event) {
    event?.preventDefault();
    const given = Object.entries(form).filter(([field, value]) => value !== DEFAULTS[field]);
    const query = new URLSearchParams(given).toString();
    app.go(`${location.hash.split('?')[0]}${query ? `?${query}` : ''}`, true);
  }

  function field(label, control, id) {
    return h('label', { for: id }, h('span', {}, label), control);
  }

  function controls() {
    const set = name => event => {
      form[name] = event.target.value;
      if (name === 'from') {
        form.at = '';
        app.redraw();
      }
    };
    const option = (value, text, chosen) => h('option', { value, selected: value === chosen }, text);
    const start = { offset: 'number', before: 'number', time: 'datetime-local' }[form.from];
    const partition = view.partitions > 200
      ? h('input', { id: 'partition', type: 'number', min: 0, max: view.partitions - 1, value: form.partition, placeholder: 'all', onchange: set('partition') })
      : h('select', { id: 'partition', onchange: set('partition') }, option('', 'all', form.partition),
        Array.from({ length: view.partitions }, (_, n) => option(String(n), String(n), form.partition)));
    return h('form', { class: 'controls', onsubmit: show, 'aria-label': 'Which records' },
      field('Partition', partition, 'partition'),
      field('From', h('select', { id: 'from', onchange: set('from') },
        option('newest', 'newest first', form.from), option('oldest', 'the beginning', form.from),
        option('offset', 'offset, onwards', form.from), option('before', 'offset, backwards', form.from),
        option('time', 'a time, onwards', form.from)), 'from'),
      start && field(start === 'number' ? 'Offset' : 'Time', h('input', {
        id: 'at', 'data-key': `at-${start}`, type: start, min: start === 'number' ? 0 : null, step: start === 'number' ? 1 : 'any', value: form.at,
        required: true, oninput: set('at'),
      }), 'at'),
      field('Key', h('input', { id: 'key', type: 'text', value: form.key, autocomplete: 'off', spellcheck: 'false', oninput: set('key') }), 'key'),
      field('Contains', h('input', { id: 'contains', type: 'search', value: form.contains, autocomplete: 'off', spellcheck: 'false', 'data-search': true, oninput: set('contains') }), 'contains'),
      field('At once', h('select', { id: 'limit', onchange: set('limit') },
        ['20', '50', '100', '500'].map(value => option(value, value, form.limit))), 'limit'),
      h('div', { class: 'buttons' },
        h('button', { type: 'submit', class: 'main' }, 'Show'),
        h('button', {
          type: 'button', 'aria-pressed': String(Boolean(view.live)), onclick: () => (view.live ? stopLive() : startLive()),
        }, view.live ? 'Live: on' : 'Live')));
  }

  function line(record) {
    const key = `${record.partition}-${record.offset}`;
    const shown = view.open.get(key);
    const toggle = () => {
      if (shown) view.open.delete(key);
      else view.open.set(key, { form: null });
      app.redraw();
    };
    const cells = h('tr', { 'data-key': key, class: `record${record.isNew ? ' new' : ''}` },
      h('td', { 'data-name': 'Time' }, h('button', {
        type: 'button', class: 'fold', 'aria-expanded': String(Boolean(shown)), onclick: toggle,
        'aria-label': `Record ${record.offset} of partition ${record.partition}`,
      }, shown ? '▾' : '▸'), ' ', moment(record.timestamp)),
      h('td', { class: 'number', 'data-name': 'Partition' }, record.partition),
      h('td', { class: 'number', 'data-name': 'Offset' }, number(record.offset)),
      h('td', { class: 'key', 'data-name': 'Key' }, preview(record, 'key')),
      h('td', { class: 'value', 'data-name': 'Value' }, preview(record, 'value')));
    return shown ? [cells, h('tr', { 'data-key': `${key}-more`, class: 'more' }, h('td', { colspan: 5 }, detail(record, shown)))] : [cells];
  }

  function detail(record, shown) {
    const whole = shown.whole ?? record;
    const forms = ['Text', 'JSON', 'Hex'];
    const text = asText(whole, 'value');
    shown.form ??= text !== null && isJson(text) ? 'JSON' : text === null && whole.value_bytes !== null ? 'Hex' : 'Text';
    const choose = form => () => {
      shown.form = form;
      app.redraw();
    };
    const fetchWhole = () => app.attempt(async () => {
      const { document } = await get(path, { partition: record.partition, offset: record.offset, limit: 1, whole: true });
      [shown.whole] = document.records;
    });
    return h('div', { class: 'detail' },
      h('dl', { class: 'facts small' },
        h('div', {}, h('dt', {}, 'Time in UTC'), h('dd', {}, new Date(record.timestamp).toISOString())),
        h('div', {}, h('dt', {}, 'Time is'), h('dd', {}, record.timestamp_type ? 'of the append' : 'the producer’s')),
        h('div', {}, h('dt', {}, 'Value'), h('dd', {}, record.value_bytes === null ? 'null (a tombstone)' : bytes(record.value_bytes))),
        h('div', {}, h('dt', {}, 'Key'), h('dd', {}, record.key_bytes === null ? 'null' : bytes(record.key_bytes)))),
      h('h2', { class: 'small' }, 'Key'), h('pre', { class: `stored${whole.key === null && whole.key_bytes !== null ? ' hex' : ''}`, tabindex: 0 }, body(whole, 'key', 'Text')),
      h('div', { class: 'head' }, h('h2', { class: 'small' }, 'Value'),
        h('div', { class: 'choice', role: 'group', 'aria-label': 'How the value is shown' },
          forms.map(form => h('button', { type: 'button', 'aria-pressed': String(shown.form === form), onclick: choose(form) }, form)))),
      h('pre', { class: `stored ${shown.form.toLowerCase()}`, tabindex: 0, 'data-key': `value-${shown.form}-${Boolean(shown.whole)}` }, body(whole, 'value', shown.form)),
      whole.value_is_cut && h('p', { class: 'note' }, `This is its beginning, of ${bytes(record.value_bytes)}. `,
        !shown.whole && h('button', { type: 'button', onclick: fetchWhole }, 'Show up to 1 MiB')),
      h('h2', { class: 'small' }, 'Headers'),
      whole.headers.length
        ? h('dl', { class: 'headers' }, whole.headers.map(header =>
          h('div', {}, h('dt', {}, header.key), h('dd', {}, shortForm(header, 'value')))))
        : h('p', { class: 'note' }, 'none'),
      whole.headers_left_out > 0 && h('p', { class: 'note' }, `and ${number(whole.headers_left_out)} more`));
  }

  return {
    once: true,
    load,
    stop: () => view.live?.abort(),
    render() {
      const left = backwards() ? view.cursor : view.cursor && (view.records.length >= Number(form.limit) || !view.complete);
      return [
        controls(),
        h('p', { class: 'note', role: 'status' }, [
          `${number(view.records.length)} record${view.records.length === 1 ? '' : 's'}`,
          form.key || form.contains ? `, ${number(view.scanned)} looked through` : '',
          view.live ? `, live since ${clock(app.liveSince(view))}` : '', view.note ? `. ${view.note}` : '',
        ].join('')),
        view.records.length
          ? h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Records' }, h('table', { class: 'records' },
            h('caption', { class: 'hidden-text' }, `Records of ${name}`),
            h('thead', {}, h('tr', {}, ['Time', 'Partition', 'Offset', 'Key', 'Value'].map(text =>
              h('th', { scope: 'col', class: text === 'Partition' || text === 'Offset' ? 'number' : null }, text)))),
            h('tbody', {}, view.records.map(line))))
          : empty(view.complete ? 'There is no such record.' : 'None so far.'),
        left && !view.live && h('p', {}, h('button', { type: 'button', onclick: more },
          view.complete ? (backwards() ? 'Older' : 'Newer') : `Look further: ${number(view.scanned)} were looked through`)),
      ];
    },
  };
}

function sleep(ms, signal) {
  return new Promise(resolve => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
}

function toUtc(local) {
  const date = new Date(local);
  return Number.isNaN(date.getTime()) ? local : date.toISOString();
}

// --- bytes -------------------------------------------------------------------------------------

function asText(record, name) {
  return record[name];
}

function asBytes(record, name) {
  const base64 = record[`${name}_base64`];
  if (base64 !== undefined) return Uint8Array.from(atob(base64), char => char.charCodeAt(0));
  return record[name] === null ? null : new TextEncoder().encode(record[name]);
}

function body(record, name, form) {
  const data = asBytes(record, name);
  if (data === null) return h('i', {}, 'null');
  const text = asText(record, name);
  if (form === 'Hex' || text === null) return hex(data);
  if (form === 'JSON') return jsonTree(text) ?? [h('i', {}, 'This is not JSON, or too much of it.'), '\n', lines(text)];
  return lines(text);
}

function shortForm(record, name) {
  const text = asText(record, name);
  if (text !== null) return text.length > PREVIEW ? `${text.slice(0, PREVIEW)}…` : text;
  const data = asBytes(record, name);
  if (data === null) return h('i', {}, 'null');
  const digits = [...data.subarray(0, 24)].map(byte => byte.toString(16).padStart(2, '0')).join(' ');
  return h('code', {}, `${digits}${data.length > 24 ? ' …' : ''}`);
}

function preview(record, name) {
  const shown = shortForm(record, name);
  return typeof shown === 'string' ? printable(shown) : shown;
}
