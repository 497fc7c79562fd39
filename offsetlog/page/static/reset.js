// A group's reset: where to, before and after of each partition to scale, and its execution.

import { ApiError, get, groupPath, post, topicPath } from './api.js';
import { move } from './charts.js';
import { empty, h, number } from './dom.js';

const SHOWN = 200;
const DEBOUNCE_MS = 250;
const MOST_FILE = 3_500_000;

const WAYS = [
  ['earliest', 'To the beginning'],
  ['latest', 'To the end'],
  ['current', 'To the current positions'],
  ['offset', 'To an offset'],
  ['shift', 'By a number of records'],
  ['datetime', 'To a date and time'],
  ['duration', 'Back by a duration'],
  ['file', 'To the offsets of a file'],
];
const DURATIONS = [['10 minutes', 'PT10M'], ['1 hour', 'PT1H'], ['1 day', 'P1D'], ['7 days', 'P7D']];

const two = value => String(value).padStart(2, '0');

function localText(date) {
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}T${two(date.getHours())}:${two(date.getMinutes())}`;
}

function midnight(daysAgo) {
  const date = new Date();
  date.setHours(0, 0, 0, 0);
  date.setDate(date.getDate() - daysAgo);
  return date;
}

/** The request's words, or a text that says what is missing. */
export function order(form) {
  const out = {};
  if (form.topic) out.topic = form.topic;
  if (form.partitions.trim()) {
    if (!form.topic) return 'Choose a topic to name its partitions.';
    const parts = form.partitions.split(',').map(part => part.trim());
    if (!parts.every(part => /^\d{1,9}$/.test(part))) return 'Write partitions like 0,1,5.';
    out.partitions = parts.map(Number);
  }
  switch (form.way) {
    case 'earliest': case 'latest': case 'current':
      return { ...out, to: form.way };
    case 'offset':
      return /^\d{1,15}$/.test(form.offset) ? { ...out, to: Number(form.offset) } : 'Enter an offset.';
    case 'shift':
      return /^[+-]?\d{1,15}$/.test(form.shift) ? { ...out, shift_by: Number(form.shift) } : 'Enter a number of records, below 0 to go back.';
    case 'datetime': {
      const date = new Date(form.datetime);
      return Number.isNaN(date.getTime()) ? 'Enter a date and time.' : { ...out, to_datetime: date.toISOString() };
    }
    case 'duration':
      return form.duration.trim() ? { ...out, by_duration: form.duration.trim() } : 'Enter a duration such as PT10M.';
    default:
      if (form.file.length > MOST_FILE) return 'This is too much for the page. Use: offsetlog groups reset --from-file';
      return form.file.trim() ? { ...out, from_file: form.file } : 'Paste or choose lines of topic,partition,offset.';
  }
}

/** The same as a command. */
export function command(group, asked, url) {
  const quote = text => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${String(text).replaceAll("'", "'\\''")}'`);
  const words = ['offsetlog', '--root', quote(url), 'groups', 'reset', quote(group)];
  if (asked.topic) words.push('--topic', quote(asked.partitions ? `${asked.topic}:${asked.partitions.join(',')}` : asked.topic));
  else if (asked.from_file === undefined) words.push('--all-topics');
  if (typeof asked.to === 'number') words.push('--to-offset', asked.to);
  else if (asked.to) words.push(`--to-${asked.to}`);
  if (asked.shift_by !== undefined) words.push('--shift-by', asked.shift_by);
  if (asked.to_datetime) words.push('--to-datetime', quote(asked.to_datetime));
  if (asked.by_duration) words.push('--by-duration', quote(asked.by_duration));
  if (asked.from_file !== undefined) words.push('--from-file', 'positions.csv');
  return [...words, '--execute'].join(' ');
}

export function resetView(app, name, parameters) {
  const form = {
    way: 'earliest', topic: parameters.get('topic') ?? '', partitions: '', offset: '0', shift: '-100',
    datetime: localText(midnight(1)), duration: 'PT1H', file: '',
  };
  const view = { topics: null, plan: null, problem: '', asked: null, sure: false, busy: false, done: null, shown: SHOWN };
  let timer = null;
  let abort = null;

  function changed() {
    // What is shown is of the order before, until the next dry run: nothing is executed meanwhile.
    view.sure = false;
    view.done = null;
    view.asked = null;
    clearTimeout(timer);
    timer = setTimeout(preview, DEBOUNCE_MS);
    app.redraw();
  }

  async function preview() {
    abort?.abort();
    abort = new AbortController();
    const { signal } = abort;
    const asked = order(form);
    view.asked = null;
    if (typeof asked === 'string') {
      Object.assign(view, { plan: null, problem: asked });
      app.redraw();
      return;
    }
    try {
      const { document } = await post(`${groupPath(name)}/reset`, { ...asked, dry_run: true }, signal);
      Object.assign(view, { plan: document, problem: '', asked });
      app.reached();
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      Object.assign(view, { plan: null, problem: error.message });
    }
    if (!signal.aborted) app.redraw();
  }

  async function execute() {
    if (!view.asked || view.busy) return;
    view.busy = true;
    app.redraw();
    try {
      const { document } = await post(`${groupPath(name)}/reset`, { ...view.asked, dry_run: false });
      Object.assign(view, { plan: document, done: document, problem: '' });
      document.partitions.length && app.say(`The group ${name} was reset.`);
    } catch (error) {
      view.problem = error.message;
    }
    Object.assign(view, { busy: false, sure: false });
    app.redraw();
  }

  const set = field => event => {
    form[field] = event.target.value;
    changed();
  };

  function choose(way) {
    form.way = way;
    changed();
  }

  function quick(field, value, text) {
    return h('button', {
      type: 'button',
      onclick: () => {
        form[field] = value;
        const input = document.getElementById(`reset-${field}`);
        if (input) input.value = value;
        changed();
      },
    }, text);
  }

  function target() {
    const input = (field, props) => h('input', { id: `reset-${field}`, value: form[field], oninput: set(field), ...props });
    switch (form.way) {
      case 'offset':
        return h('label', {}, h('span', {}, 'Offset'), input('offset', { type: 'number', min: 0, step: 1 }));
      case 'shift':
        return h('label', {}, h('span', {}, 'Records, below 0 to go back'), input('shift', { type: 'number', step: 1 }));
      case 'datetime':
        return [h('label', {}, h('span', {}, 'The first record at or after, in your own time'), input('datetime', { type: 'datetime-local', step: 'any' })),
          h('div', { class: 'buttons' }, quick('datetime', localText(midnight(1)), 'Start of yesterday'),
            quick('datetime', localText(midnight(0)), 'Start of today'))];
      case 'duration':
        return [h('label', {}, h('span', {}, 'ISO 8601, such as PT10M or P1D'), input('duration', { type: 'text', autocomplete: 'off' })),
          h('div', { class: 'buttons' }, DURATIONS.map(([text, value]) => quick('duration', value, text)))];
      case 'file':
        return [h('label', {}, h('span', {}, 'Lines of topic,partition,offset, as --export prints them'),
          h('textarea', { id: 'reset-file', rows: 5, spellcheck: 'false', oninput: set('file') })),
        h('label', {}, h('span', {}, 'or a file'), h('input', {
          type: 'file', accept: '.csv,text/csv,text/plain',
          onchange: async event => {
            const [file] = event.target.files;
            if (!file) return;
            form.file = await file.slice(0, MOST_FILE + 1).text();
            document.getElementById('reset-file').value = form.file;
            changed();
          },
        }))];
      default:
        return null;
    }
  }

  function controls() {
    return h('form', { class: 'reset', onsubmit: event => event.preventDefault(), 'aria-label': 'The reset' },
      h('fieldset', {}, h('legend', {}, 'Where to'), h('div', { class: 'ways' }, WAYS.map(([way, text]) =>
        h('label', { class: 'way' }, h('input', { type: 'radio', name: 'way', value: way, checked: way === form.way, onchange: () => choose(way) }), ' ', text)))),
      h('div', { class: 'controls', 'data-key': `target-${form.way}` }, target()),
      h('div', { class: 'controls', 'data-key': 'which' },
        h('label', {}, h('span', {}, 'Topic'), h('select', { id: 'reset-topic', onchange: set('topic') },
          h('option', { value: '', selected: !form.topic }, 'all topics of the group'),
          view.topics.map(topic => h('option', { value: topic, selected: topic === form.topic }, topic)))),
        h('label', {}, h('span', {}, 'Partitions'), h('input', {
          id: 'reset-partitions', type: 'text', placeholder: 'all', autocomplete: 'off', value: form.partitions, oninput: set('partitions'),
        }))));
  }

  function effect({ before, after }) {
    if (before === null) return `begins at ${number(after)}`;
    if (after < before) return `${number(before - after)} offsets again`;
    if (after > before) return `skips ${number(after - before)} offsets`;
    return 'stays';
  }

  function summary(moves) {
    const again = moves.reduce((sum, one) => sum + Math.max(0, (one.before ?? one.after) - one.after), 0);
    const skipped = moves.reduce((sum, one) => sum + Math.max(0, one.after - (one.before ?? one.after)), 0);
    const moved = moves.filter(one => one.before !== one.after).length;
    const parts = [`${number(moved)} of ${number(moves.length)} partition${moves.length === 1 ? '' : 's'} move`];
    if (again) parts.push(`${number(again)} offsets are read again`);
    if (skipped) parts.push(`${number(skipped)} are skipped`);
    return `${parts.join(', ')}.`;
  }

  function drawn(moves) {
    return h('ol', { class: 'moves' }, moves.slice(0, view.shown).map(one => {
      const label = `Partition ${one.partition} of ${one.topic}, offsets ${number(one.start)} to ${number(one.end)}: ` +
        `from ${one.before === null ? 'no position' : number(one.before)} to ${number(one.after)}, ${effect(one)}`;
      return h('li', { 'data-key': `${one.topic}-${one.partition}` },
        h('div', { class: 'name' }, h('b', {}, `${one.topic} ${one.partition}`), ' ',
          h('span', { class: 'positions' }, `${one.before === null ? '–' : number(one.before)} → ${number(one.after)}`), ' ',
          h('span', { class: 'note' }, effect(one))),
        move(one, label),
        h('div', { class: 'ends' }, h('span', {}, number(one.start)), h('span', {}, number(one.end))),
        one.warning && h('p', { class: 'problem' }, one.warning));
    }));
  }

  function ending() {
    const { state } = app;
    if (view.done) return null;
    const moves = view.plan.partitions;
    const isCurrent = view.asked !== null;
    const cli = isCurrent && h('details', {}, h('summary', {}, 'The same as a command'), h('pre', { tabindex: 0 }, command(name, view.asked, state.url)));
    if (!state.allow_changes) {
      return [h('p', { class: 'hint' }, 'This page only reads. Start it with --allow-changes to execute this here.'), cli];
    }
    if (!state.has_token) {
      return [h('p', { class: 'hint' }, 'To execute this, open the address with the token that ‘offsetlog page’ printed when it started, in this tab.'), cli];
    }
    const button = view.sure && isCurrent
      ? h('div', { class: 'sure', role: 'group', 'aria-label': 'Are you sure?', 'data-key': 'sure' },
        h('p', {}, h('b', {}, `Move the group ${name}?`), ' ', summary(moves), ' Running members follow within half a second.'),
        h('div', { class: 'buttons' },
          h('button', { type: 'button', class: 'danger', disabled: view.busy, onclick: execute }, 'Yes, move it'),
          h('button', {
            type: 'button',
            onclick: () => {
              view.sure = false;
              app.redraw();
            },
          }, 'No')))
      : h('p', { 'data-key': 'execute' }, h('button', {
        type: 'button', class: 'main', disabled: !moves.length || !isCurrent,
        onclick: () => {
          view.sure = true;
          app.redraw();
          queueMicrotask(() => document.querySelector('.sure button')?.focus());
        },
      }, 'Execute…'));
    return [button, cli];
  }

  function outcome() {
    if (view.problem && !view.plan) return h('p', { class: 'problem', role: 'status', 'data-key': 'problem' }, view.problem);
    if (!view.plan) return empty('…');
    const moves = view.plan.partitions;
    return h('section', { 'aria-label': 'Before and after', 'aria-busy': String(!view.asked && !view.done), 'data-key': 'plan' },
      h('h2', {}, view.done ? 'Done' : 'Dry run: nothing is changed yet'),
      view.problem && h('p', { class: 'problem', role: 'alert' }, view.problem),
      h('p', { role: 'status' }, summary(moves)),
      h('p', { class: 'legend', 'aria-hidden': 'true' },
        h('span', { class: 'mark-before' }, '▼ before'), ' ', h('span', { class: 'mark-after' }, '▲ after'), ' ',
        h('span', { class: 'mark-again' }, '■ read again'), ' ', h('span', { class: 'mark-skipped' }, '■ skipped')),
      drawn(moves),
      moves.length > view.shown && h('p', {}, h('button', {
        type: 'button',
        onclick: () => {
          view.shown += 1000;
          app.redraw();
        },
      }, `Show more of ${number(moves.length)}`)),
      ending());
  }

  return {
    once: true,
    stop() {
      clearTimeout(timer);
      abort?.abort();
    },
    async load(signal) {
      const known = app.groups.find(group => group.name === name);
      view.topics = known?.topics ?? [];
      if (form.topic && !view.topics.includes(form.topic)) {
        await get(topicPath(form.topic), {}, signal);
        view.topics = [...view.topics, form.topic].sort();
      }
      if (!form.topic && view.topics.length === 1) [form.topic] = view.topics;
      await preview();
      return { state: known?.state };
    },
    render: () => [controls(), outcome()],
  };
}
