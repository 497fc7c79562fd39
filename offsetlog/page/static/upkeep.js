// Verification and upkeep with their progress, and the log of what changed.

import { get, post } from './api.js';
import { bytes, empty, h, moment, number, row, table } from './dom.js';
import { groupLink, topicLink } from './topics.js';

export function changesView() {
  const columns = [{ name: 'Time' }, { name: 'Of' }, { name: 'What changed' }, { name: 'By' }];
  const link = change => {
    if (change.kind === 'group') return h('span', {}, 'group ', h('a', { href: groupLink(change.name) }, change.name));
    if (change.kind === 'topic') return h('span', {}, 'topic ', h('a', { href: topicLink(change.name) }, change.name));
    return change.name;
  };
  return {
    title: 'Changes',
    load: async signal => (await get('api/changes', {}, signal)).document,
    render: changes => [
      h('h1', {}, 'What changed'),
      h('p', { class: 'note' }, 'Topics, settings, groups, resets and upkeep, since this page’s server was started and while it was looked at. A topic’s chain has its whole history.'),
      changes.length
        ? table('Changes, newest first', columns, changes.map((change, i) => row(`${change.at}-${change.kind}-${change.name}-${changes.length - i}`, [
          moment(change.at), link(change), change.text, change.by_page ? 'this page' : h('span', { class: 'note' }, 'noticed'),
        ], columns)), { wide: true })
        : empty('Nothing has changed since.'),
    ],
  };
}

const KINDS = { verify: 'Verification', maintain: 'Upkeep' };

export function upkeepView(app) {
  const form = { topic: '' };
  const start = kind => () => app.attempt(async () => {
    await post('api/jobs', { kind, topic: form.topic || null });
    await app.refresh();
  });
  const end = job => () => app.attempt(async () => {
    await post(`api/jobs/${job.job}/end`, {});
    await app.refresh();
  });
  return {
    title: 'Upkeep',
    soon: data => data?.jobs.some(job => job.state === 'running'),
    load: async signal => ({
      jobs: (await get('api/jobs', {}, signal)).document,
      topics: (await get('api/topics', {}, signal)).document.filter(topic => !topic.error).map(topic => topic.name),
    }),
    render({ jobs, topics }) {
      const busy = jobs.some(job => job.state === 'running');
      const may = app.state.allow_changes && app.state.has_token;
      return [
        h('h1', {}, 'Upkeep'),
        h('form', { class: 'controls', onsubmit: event => event.preventDefault(), 'aria-label': 'What to do' },
          h('label', {}, h('span', {}, 'Topic'), h('input', {
            type: 'text', list: 'topic-names', placeholder: 'all', autocomplete: 'off',
            oninput: event => {
              form.topic = event.target.value.trim();
            },
          })),
          h('datalist', { id: 'topic-names' }, topics.slice(0, 1000).map(name => h('option', { value: name }))),
          h('div', { class: 'buttons' },
            h('button', { type: 'button', class: 'main', disabled: busy || !app.state.may_verify, onclick: start('verify') }, 'Verify'),
            h('button', { type: 'button', disabled: busy || !may, onclick: start('maintain') }, 'Maintain'))),
        h('p', { class: 'note' }, 'Verify reads every file and checks every promise; it changes nothing. Maintain applies retention, merges small files and deletes unused ones.',
          !app.state.allow_changes && ' This page only reads: start it with --allow-changes to maintain.',
          !app.state.may_verify && ` ${app.state.allow_changes ? 'For either' : 'To verify'}, open the address with the token in this tab.`),
        jobs.length ? jobs.map(job => jobCard(job, end(job), job.kind === 'verify' ? app.state.may_verify : may)) : empty('Nothing was started yet.'),
      ];
    },
  };
}

function jobCard(job, end, mayEnd) {
  const name = `${KINDS[job.kind]} of ${job.topic ?? 'all topics'}`;
  const known = job.total > 0;
  return h('section', { class: 'card', 'data-key': `job-${job.job}`, 'aria-label': `${name}, number ${job.job}` },
    h('div', { class: 'head' }, h('h2', {}, name),
      h('span', { class: `state ${{ done: 'good', running: 'warn', failed: 'bad' }[job.state] ?? 'plain'}` }, job.state)),
    job.state === 'running' && h('div', {},
      h('progress', { 'aria-label': `Progress of ${name}`, max: known ? job.total : null, value: known ? job.finished : null }),
      h('p', { role: 'status' }, job.step ? `${job.step}: ${number(job.finished)} of ${number(job.total)}` : 'it begins'),
      h('button', { type: 'button', disabled: !mayEnd, onclick: end }, 'End it')),
    job.error && h('p', { class: 'problem' }, job.error),
    h('p', { class: 'note' }, 'Started ', moment(job.started_at), job.ended_at && ', ended ', job.ended_at && moment(job.ended_at)),
    job.result.length > 0 && (job.kind === 'verify' ? verified(job.result) : maintained(job.result)));
}

function verified(reports) {
  const columns = [{ name: 'Topic' }, { name: 'Entries', number: true }, { name: 'Records', number: true },
    { name: 'Files', number: true }, { name: 'Size', number: true }, { name: 'Result' }];
  const result = report => (report.sound ? h('span', { class: 'state good' }, 'sound') : h('div', {},
    report.faults.map(fault => h('p', { class: 'problem' }, fault)),
    report.caches.map(cache => h('p', { class: 'note' }, `a cache: ${cache.fault}`))));
  const notes = report => (report.notes ?? []).map(note => h('p', { class: 'note' }, note));
  return table('What was verified', columns, reports.map(report => row(report.topic, [
    report.topic, number(report.entries), number(report.records), number(report.files), bytes(report.bytes), [result(report), notes(report)],
  ], columns)), { wide: true });
}

function maintained(reports) {
  const columns = [{ name: 'Topic' }, { name: 'Expired records', number: true }, { name: 'Compacted records', number: true }, { name: 'Files merged', number: true },
    { name: 'New segments', number: true }, { name: 'Files deleted', number: true }, { name: 'Bytes deleted', number: true }];
  return table('What was maintained', columns, reports.map(report => row(report.topic, [
    report.topic, number(report.expired_records), number(report.compacted_records), number(report.rewritten_files), number(report.new_segments),
    number(report.deleted_files), bytes(report.deleted_bytes),
  ], columns)), { wide: true });
}
