// The list of groups with their lag and its curve, and one group: positions, lag and members.

import { get, groupPath } from './api.js';
import { curve, place, sparkline } from './charts.js';
import { bytes, count, empty, facts, h, moment, number, row, seconds, sorted, state, table, tabs } from './dom.js';
import { resetView } from './reset.js';
import { groupLink, nameFilter, sorter, topicLink } from './topics.js';

const SHOWN = 200;

/** What is said beside the lag of a group that has not committed everywhere. */
export function uncommitted(some, all) {
  if (!some) return null;
  const where = some === all ? '' : ` in ${number(some)} of ${count(all, 'partition')}`;
  return h('span', { class: 'note' }, ` no commit yet${where}`);
}

export function groupsView(app) {
  const filter = nameFilter('Search groups', app);
  const sort = sorter('records', true, app);
  const columns = [
    { name: 'Group', sort: 'name' },
    { name: 'State', sort: 'state' },
    { name: 'Members', number: true, sort: 'members' },
    { name: 'Topics' },
    { name: 'Lag in records', number: true, sort: 'records' },
    { name: 'Lag in bytes', number: true, sort: 'bytes' },
    { name: 'Lag in time', number: true, sort: 'seconds' },
    { name: 'Since this page was opened' },
    { name: 'Action' },
  ];
  const cells = group => [
    h('a', { href: groupLink(group.name) }, group.name), state(group.state), number(group.members),
    h('ul', { class: 'chips' }, group.topics.slice(0, 3).map(topic => h('li', {}, h('a', { href: topicLink(topic) }, topic))),
      group.topics.length > 3 && h('li', {}, `and ${group.topics.length - 3} more`)),
    h('span', {}, number(group.records), uncommitted(group.uncommitted, group.partitions)),
    bytes(group.bytes), seconds(group.seconds),
    sparkline(app.curve(group.name), 'records', `Lag of ${group.name} in records`),
    h('a', { href: groupLink(group.name, '/reset'), 'aria-label': `Reset ${group.name}` }, 'Reset'),
  ];
  return {
    title: 'Groups',
    load: async signal => ({ queries: (await get('api/queries', {}, signal)).document }),
    render({ queries }) {
      const { groups } = app;
      const rows = filter.of(sorted(groups, sort, (one, by) => one[by] ?? Infinity));
      return [
        h('div', { class: 'head' }, h('h1', {}, 'Groups'), filter.box()),
        h('p', { class: 'note' }, `${count(groups.length, 'group')}. Bytes and time are estimates here; a group's own view counts.`),
        rows.length
          ? table('Groups', columns, rows.slice(0, filter.shown).map(group => row(group.name, cells(group), columns)),
            { sort, onsort: sort.choose, wide: true })
          : empty(groups.length ? 'No group has such a name.' : 'There is no group yet.'),
        filter.more(rows),
        queries.length > 0 && [h('h2', {}, 'Spark queries'), queriesTable(queries)],
      ];
    },
  };
}

function queriesTable(queries) {
  const columns = [
    { name: 'Query' }, { name: 'Batch', number: true }, { name: 'At' }, { name: 'Groups' },
    { name: 'Lag in records', number: true }, { name: 'Lag in bytes', number: true }, { name: 'Lag in time', number: true },
  ];
  return table('Spark queries that report here', columns, queries.map(query => row(query.query, [
    query.query, number(query.batch), moment(Date.parse(query.at)),
    h('ul', { class: 'chips' }, query.groups.map(name => h('li', {}, h('a', { href: groupLink(name) }, name)))),
    number(query.total.records), bytes(query.total.bytes), seconds(query.total.seconds),
  ], columns)), { wide: true });
}

const TABS = ['Lag', 'Members', 'Reset'];
const MEASURES = { records: ['Records', number], bytes: ['Bytes', bytes], seconds: ['Time', seconds] };

export function groupView(app, name, tab, parameters) {
  const current = TABS.find(one => one.toLowerCase() === tab) ?? 'Lag';
  const inner = {
    Lag: () => lagTab(app, name),
    Members: () => membersTab(),
    Reset: () => resetView(app, name, parameters),
  }[current]();
  return {
    title: name,
    once: inner.once,
    every: group => (group?.partitions ? Math.max(1, group.partitions.length / 100) : 1),
    stop: inner.stop,
    load: inner.load ?? (async signal => {
      const { document, at } = await get(groupPath(name), {}, signal);
      app.addPoint(name, at, document.total);
      return document;
    }),
    render(group) {
      return [
        h('nav', { class: 'crumbs', 'aria-label': 'Where this is' }, h('a', { href: '#/groups' }, 'Groups'), ' / '),
        h('h1', {}, name, ' ', group.state && state(group.state)),
        tabs('Parts of the group', TABS.map(one => [one === 'Reset' ? 'Reset or replay' : one,
          groupLink(name, one === 'Lag' ? '' : `/${one.toLowerCase()}`)]), current === 'Reset' ? 'Reset or replay' : current),
        inner.render(group),
      ];
    },
  };
}

function lagTab(app, name) {
  let measure = 'records';
  let shown = SHOWN;
  const sort = sorter('topic', false, app);
  const columns = [
    { name: 'Topic', sort: 'topic' },
    { name: 'Partition', number: true, sort: 'partition' },
    { name: 'Position', number: true, sort: 'committed' },
    { name: 'Next offset', number: true, sort: 'end' },
    { name: 'Lag', number: true, sort: 'records' },
    { name: 'Bytes', number: true, sort: 'bytes' },
    { name: 'Time', number: true, sort: 'seconds' },
    { name: 'Read' },
    { name: 'Member', sort: 'member' },
  ];
  const from = line => line.committed ?? line.start;
  const cells = line => [
    line.end === null ? line.topic : h('a', { href: topicLink(line.topic) }, line.topic),
    line.end === null ? number(line.partition)
      : h('a', { href: `${topicLink(line.topic)}?partition=${line.partition}&from=offset&at=${from(line)}`, 'aria-label': `Partition ${line.partition}: the records from ${line.committed === null ? 'the beginning' : 'the position'} on` }, line.partition),
    number(line.committed), number(line.end),
    number(line.records), bytes(line.bytes), seconds(line.seconds),
    line.end === null ? h('span', { class: 'note' }, 'the topic is gone') : h('span', {},
      line.committed === null
        ? h('span', { class: 'note' }, 'no commit yet')
        : place(line.committed, line.start, line.end, `${number(line.records)} of ${number(line.end - line.start)} records are not read`),
      line.expired ? h('span', { class: 'note' }, ` ${number(line.expired)} left the log unread`) : null),
    h('span', {}, line.member ?? '–', line.metadata ? h('span', { class: 'note' }, ` ${line.metadata.slice(0, 200)}`) : null),
  ];
  return {
    render(group) {
      const rows = sorted(group.partitions, sort, (one, by) => one[by]);
      const [word, show] = MEASURES[measure];
      return [
        facts([
          ['Lag in records', number(group.total.records),
            uncommitted(group.partitions.filter(line => line.committed === null).length, group.partitions.length)],
          ['Lag in bytes', bytes(group.total.bytes)],
          ['Lag in time', seconds(group.total.seconds), 'age of the oldest unread record'],
          ['Members', number(group.members.length)],
          ['Resets so far', number(group.resets)],
        ]),
        h('div', { class: 'head' }, h('h2', {}, 'Lag since this page was opened'),
          h('div', { class: 'choice', role: 'group', 'aria-label': 'What the curve shows' },
            Object.entries(MEASURES).map(([one, [text]]) => h('button', {
              type: 'button', 'aria-pressed': String(one === measure),
              onclick: () => {
                measure = one;
                app.redraw();
              },
            }, text)))),
        h('div', { 'data-key': `curve-${measure}` }, curve(app.curve(name), measure, show, { label: `Lag of ${name} in ${word.toLowerCase()}` })),
        h('h2', {}, 'Positions'),
        rows.length
          ? table('Positions', columns, rows.slice(0, shown).map(line =>
            row(`${line.topic}-${line.partition}`, cells(line), columns)), { sort, onsort: sort.choose, wide: true })
          : empty('This group has no positions.'),
        rows.length > shown && h('p', {}, h('button', {
          type: 'button',
          onclick: () => {
            shown += 1000;
            app.redraw();
          },
        }, `Show more of ${number(rows.length)}`)),
      ];
    },
  };
}

function membersTab() {
  const columns = [
    { name: 'Member' }, { name: 'Client' }, { name: 'Host' }, { name: 'Partitions', number: true },
    { name: 'Reads' }, { name: 'Strategy' }, { name: 'Session', number: true },
  ];
  const reads = member => {
    const by = new Map();
    for (const [topic, partition] of member.partitions) by.set(topic, [...(by.get(topic) ?? []), partition]);
    return h('ul', { class: 'chips' }, [...by].map(([topic, list]) =>
      h('li', {}, `${topic}: ${list.slice(0, 50).join(', ')}${list.length > 50 ? ' …' : ''}`)));
  };
  return {
    render: group => (group.members.length
      ? table('Members', columns, group.members.map(member => row(member.member, [
        member.member, member.client || '–', member.host || '–', number(member.partitions.length),
        reads(member), member.strategy, seconds(member.session_timeout_ms / 1000),
      ], columns)), { wide: true })
      : empty('Nobody reads as a member of this group now.')),
  };
}
