// The list of topics, and one topic: its partitions, groups, settings, chain and files.

import { get, topicPath } from './api.js';
import { bar } from './charts.js';
import { bytes, count, empty, facts, h, moment, number, rate, row, sorted, state, table, tabs } from './dom.js';
import { recordsView } from './records.js';

const SHOWN = 200;

export const topicLink = (name, tab = '') => `#/topics/${encodeURIComponent(name)}${tab}`;
export const groupLink = (name, tab = '') => `#/groups/${encodeURIComponent(name)}${tab}`;

/** A box to search by name, and a list that shows its first rows until more are wanted. */
export function nameFilter(label, app) {
  const filter = { text: '', shown: SHOWN };
  filter.box = () => h('label', { class: 'search' }, h('span', { class: 'hidden-text' }, label),
    h('input', {
      type: 'search', placeholder: label, 'data-search': true, autocomplete: 'off', spellcheck: 'false',
      oninput: event => {
        filter.text = event.target.value.trim().toLowerCase();
        filter.shown = SHOWN;
        app.redraw();
      },
    }));
  filter.of = rows => rows.filter(one => one.name.toLowerCase().includes(filter.text));
  filter.more = rows => rows.length > filter.shown && h('p', {},
    h('button', {
      type: 'button',
      onclick: () => {
        filter.shown += 1000;
        app.redraw();
      },
    }, `Show more of ${number(rows.length)}`));
  return filter;
}

export function sorter(by, down, app) {
  const sort = { by, down };
  sort.choose = name => {
    sort.down = sort.by === name ? !sort.down : name !== 'name';
    sort.by = name;
    app.redraw();
  };
  return sort;
}

export function topicsView(app) {
  const filter = nameFilter('Search topics', app);
  const sort = sorter('name', false, app);
  const columns = [
    { name: 'Topic', sort: 'name' },
    { name: 'Partitions', number: true, sort: 'partitions' },
    { name: 'Records', number: true, sort: 'records' },
    { name: 'Size', number: true, sort: 'bytes' },
    { name: 'Records/s', number: true, sort: 'records_per_second' },
    { name: 'Groups and their lag' },
  ];
  const cells = topic => [
    h('a', { href: topicLink(topic.name) }, topic.name),
    number(topic.partitions), number(topic.records), bytes(topic.bytes),
    rate(topic.records_per_second),
    topic.groups.length
      ? h('ul', { class: 'chips' }, topic.groups.slice(0, 5).map(group =>
        h('li', {}, h('a', { href: groupLink(group.group) }, group.group), ' ',
          h('b', { class: group.records === 0 ? 'no-lag' : 'lag' }, number(group.records)),
          group.uncommitted > 0 && h('span', { class: 'note' }, ' no commit yet'))),
      topic.groups.length > 5 && h('li', {}, `and ${topic.groups.length - 5} more`))
      : h('span', { class: 'note' }, 'none'),
  ];
  return {
    title: 'Topics',
    load: async signal => (await get('api/topics', {}, signal)).document,
    render(all) {
      const topics = all.filter(topic => !topic.error);
      const rows = filter.of(sorted(topics, sort, (one, by) => one[by]));
      const sum = name => topics.reduce((total, topic) => total + topic[name], 0);
      return [
        h('div', { class: 'head' }, h('h1', {}, 'Topics'), filter.box()),
        h('p', { class: 'note' }, `${count(topics.length, 'topic')}, ${count(sum('records'), 'record')}, ` +
          `about ${bytes(sum('bytes'))} before compression.`),
        all.filter(topic => topic.error).map(topic =>
          h('p', { class: 'problem', 'data-key': `error-${topic.name}` }, `${topic.name} can't be read: ${topic.error}`)),
        rows.length
          ? table('Topics', columns, rows.slice(0, filter.shown).map(topic => row(topic.name, cells(topic), columns)),
            { sort, onsort: sort.choose, wide: true })
          : empty(topics.length ? 'No topic has such a name.' : 'There is no topic yet.'),
        filter.more(rows),
      ];
    },
  };
}

const TABS = ['Records', 'Partitions', 'Groups', 'Settings', 'Chain', 'Files'];

export function topicView(app, name, tab, parameters) {
  const current = TABS.find(one => one.toLowerCase() === tab) ?? 'Records';
  const path = topicPath(name);
  const inner = {
    Records: () => recordsView(app, name, parameters),
    Partitions: () => partitionsTab(app, path),
    Groups: () => groupsTab(path),
    Settings: () => settingsTab(path),
    Chain: () => chainTab(app, path),
    Files: () => filesTab(app, path, parameters),
  }[current]();
  return {
    ...inner,
    title: name,
    render(data) {
      return [
        h('nav', { class: 'crumbs', 'aria-label': 'Where this is' }, h('a', { href: '#/topics' }, 'Topics'), ' / '),
        h('h1', {}, name),
        tabs('Parts of the topic', TABS.map(one => [one, topicLink(name, one === 'Records' ? '' : `/${one.toLowerCase()}`)]), current),
        inner.render(data),
      ];
    },
  };
}

function partitionsTab(app, path) {
  const sort = sorter('partition', false, app);
  let shown = SHOWN;
  const columns = [
    { name: 'Partition', number: true, sort: 'partition' },
    { name: 'First offset', number: true, sort: 'beginning_offset' },
    { name: 'Next offset', number: true, sort: 'end_offset' },
    { name: 'Records', number: true, sort: 'records' },
    { name: 'Size', number: true, sort: 'bytes' },
    { name: 'Share of the largest' },
  ];
  return {
    load: async signal => (await get(path, {}, signal)).document,
    render(topic) {
      const parts = topic.partitions;
      const most = Math.max(...parts.map(part => part.records), 0);
      const rows = sorted(parts, sort, (one, by) => one[by]).slice(0, shown);
      return [
        facts([
          ['Records', number(topic.records)],
          ['Size', bytes(topic.bytes), 'before compression'],
          ['Records/s', rate(topic.records_per_second), 'over the last minute'],
          ['Entries', number(topic.entries), 'of its chain'],
        ]),
        table('Partitions', columns, rows.map(part => row(String(part.partition), [
          h('a', { href: `${location.hash.replace(/\/partitions$/, '')}?partition=${part.partition}` }, part.partition),
          number(part.beginning_offset), number(part.end_offset), number(part.records), bytes(part.bytes),
          bar(part.records, most, `${number(part.records)} of at most ${number(most)} records`),
        ], columns)), { sort, onsort: sort.choose }),
        parts.length > shown && h('p', {}, h('button', {
          type: 'button',
          onclick: () => {
            shown += 1000;
            app.redraw();
          },
        }, `Show more of ${number(parts.length)}`)),
      ];
    },
  };
}

function groupsTab(path) {
  const columns = [{ name: 'Group' }, { name: 'State' }, { name: 'Lag in records', number: true }, { name: 'Action' }];
  return {
    load: async signal => (await get(path, {}, signal)).document,
    render: topic => (topic.groups.length
      ? table('Groups that read this topic', columns, topic.groups.map(group => row(group.group, [
        h('a', { href: groupLink(group.group) }, group.group), state(group.state),
        h('span', {}, number(group.records), group.uncommitted > 0 && h('span', { class: 'note' }, ' no commit yet')),
        h('a', { href: `${groupLink(group.group, '/reset')}?topic=${encodeURIComponent(topic.name)}` }, 'Reset'),
      ], columns)))
      : empty('No group reads this topic.')),
  };
}

function settingsTab(path) {
  const columns = [{ name: 'Setting' }, { name: 'Value' }, { name: 'From' }];
  return {
    load: async signal => (await get(path, {}, signal)).document,
    render: topic => [
      facts([
        ['Where it is stored', h('code', {}, topic.folder)],
        topic.table && ['Its Delta table', h('code', {}, topic.table.path), `version ${number(topic.table.version)}`],
      ]),
      table('Settings', columns, Object.entries(topic.settings).map(([key, value]) => row(key, [
        h('code', {}, key), value === '' ? '–' : value,
        key in topic.config ? h('b', {}, 'set for this topic') : h('span', { class: 'note' }, 'default'),
      ], columns)), { wide: true }),
    ],
  };
}

const WORDS = {
  append: 'records were appended', create: 'the topic was created', configure: 'settings or partitions changed',
  delete: 'the topic was deleted', trim: 'records were deleted at the beginning', replace: 'files were merged',
  compact: 'older records of keys were removed', erase: 'records of keys were erased',
  collect: 'unused files may go', expire: 'old producers were forgotten', missing: 'it is missing',
};

function aboutEntry(entry) {
  const parts = [];
  if (entry.records !== undefined) parts.push(`${number(entry.records)} records`);
  if (entry.bytes !== undefined) parts.push(bytes(entry.bytes));
  if (entry.partitions?.length) parts.push(`partition ${entry.partitions.join(', ')}`);
  if (entry.segments) parts.push(`${entry.segments} segment${entry.segments === 1 ? '' : 's'}`);
  if (entry.app_id) parts.push(`by ${entry.app_id}`);
  if (entry.partition_count) parts.push(`${entry.partition_count} partitions`);
  for (const [key, value] of Object.entries(entry.config ?? {})) parts.push(`${key}=${value}`);
  for (const [part, start] of Object.entries(entry.starts ?? {})) parts.push(`partition ${part} begins at ${number(start)}`);
  if (entry.erased_records !== undefined) parts.push(`${number(entry.erased_records)} records of ${entry.keys} keys, asked for by ${entry.by}`);
  if (entry.horizon !== undefined) parts.push(`born before entry ${number(entry.horizon)}`);
  if (entry.app_ids?.length) parts.push(entry.app_ids.join(', '));
  if (entry.is_stub) parts.push('its rows were moved to segments');
  return parts.join(' · ');
}

/** A list that goes on where its last page ended, and is not read again by itself. */
function pages(app, path, field, parameters = {}) {
  const kept = { rows: [], before: null, more: false };
  const load = async signal => {
    const { document } = await get(path, { ...parameters, before: kept.before, limit: 50 }, signal);
    kept.rows.push(...document[field]);
    kept.before = document.before;
    kept.more = document.before !== null;
    return kept;
  };
  return {
    once: true,
    load,
    button: () => kept.more && h('p', {}, h('button', { type: 'button', onclick: () => app.refresh() }, 'Older')),
  };
}

function chainTab(app, path) {
  const list = pages(app, `${path}/entries`, 'entries');
  const columns = [{ name: 'Entry', number: true }, { name: 'Time' }, { name: 'What' }, { name: 'More' }, { name: 'File', number: true }];
  return {
    ...list,
    render: kept => [
      h('p', { class: 'note' }, 'The topic is this chain of small files, newest first. An entry says what its ' +
        'author wanted; one that lost a race counts for nothing.'),
      table('Entries of the chain', columns, kept.rows.map(entry => row(String(entry.entry), [
        h('span', { title: entry.file }, number(entry.entry)), moment(entry.time),
        WORDS[entry.kind] ?? entry.kind, aboutEntry(entry), bytes(entry.file_bytes),
      ], columns)), { wide: true }),
      list.button(),
    ],
  };
}

function filesTab(app, path, parameters) {
  const partition = parameters.get('partition') ?? '0';
  const list = pages(app, `${path}/files`, 'files', { partition });
  const columns = [
    { name: 'Offsets' }, { name: 'Records', number: true }, { name: 'Size', number: true },
    { name: 'From' }, { name: 'To' }, { name: 'File' },
  ];
  let count = null;
  return {
    ...list,
    load: async signal => {
      count ??= (await get(path, {}, signal)).document.partitions.length;
      return list.load(signal);
    },
    render: kept => [
      h('form', { class: 'controls', onsubmit: event => event.preventDefault() },
        h('label', {}, 'Partition ', h('input', {
          type: 'number', min: 0, max: count - 1, value: partition,
          onchange: event => app.go(`${location.hash.split('?')[0]}?partition=${encodeURIComponent(event.target.value)}`),
        }))),
      kept.rows.length
        ? table(`Files of partition ${partition}`, columns, kept.rows.map(file => row(`${file.base}`, [
          `${number(file.base)} – ${number(file.end - 1)}`, number(file.records), bytes(file.file_bytes ?? file.bytes),
          moment(file.records ? file.min_timestamp : null), moment(file.records ? file.max_timestamp : null),
          file.file === null ? h('span', { class: 'note' }, 'none: all of it is gone')
            : h('code', { class: 'file' }, file.file, file.is_entry ? ' (an entry)' : ''),
        ], columns)), { wide: true })
        : empty('This partition has no records.'),
      list.button(),
    ],
  };
}
