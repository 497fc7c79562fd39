// The page in the browser: which view is shown, when it looks again, keys, and the theme.
//
// It looks as often as the server does, and no more: every minute while nobody is at it (ten
// minutes without a key or a pointer, or a hidden tab). What it keeps in memory is bounded.

import { ApiError, get } from './api.js';
import { Series } from './charts.js';
import { clock, h, patch, patchChildren } from './dom.js';
import { groupsView, groupView } from './groups.js';
import { topicsView, topicView } from './topics.js';
import { changesView, upkeepView } from './upkeep.js';

const IDLE_MS = 600_000;
const IDLE_PAUSE_MS = 60_000;
const LEAST_PAUSE_MS = 2000;
const MOST_PAUSE_MS = 30_000;
const MAX_CURVES = 500;

const main = document.getElementById('main');
const banner = document.getElementById('banner');
const pulse = document.getElementById('pulse');
const keys = document.getElementById('keys');

let view = null;
let data;
let run = null;
let timer = null;
let failures = 0;
let lastActive = Date.now();
let lookedAt = null;
let drawing = false;
const curves = new Map();
const liveSince = new WeakMap();

const app = {
  state: null,
  groups: [],
  curve: name => curves.get(name)?.points ?? [],
  addPoint(name, at, { records, bytes, seconds }) {
    if (!at) return;
    if (!curves.has(name)) {
      if (curves.size >= MAX_CURVES) return;
      curves.set(name, new Series());
    }
    curves.get(name).add(at, { records, bytes, seconds });
  },
  go(hash, again = false) {
    if (location.hash === hash && again) open();
    else location.hash = hash;
  },
  redraw() {
    // Once for all that changed together.
    if (drawing) return;
    drawing = true;
    queueMicrotask(() => {
      drawing = false;
      draw();
    });
  },
  refresh: () => look(),
  /** Do something that somebody clicked for; what goes wrong is said. */
  async attempt(work) {
    try {
      await work();
      app.reached();
    } catch (error) {
      app.failed(error, true);
    }
    app.redraw();
  },
  idleMs: () => (document.hidden ? Infinity : Date.now() - lastActive),
  liveSince(one) {
    if (!liveSince.has(one.live)) liveSince.set(one.live, Date.now());
    return liveSince.get(one.live);
  },
  say(text) {
    pulse.textContent = text;
  },
  reached() {
    failures = 0;
    banner.hidden = true;
  },
  failed(error, stays = false) {
    if (error?.name === 'AbortError') return;
    if (!(error instanceof ApiError)) throw error;
    failures += 1;
    const since = lookedAt && !stays ? ` What is shown is of ${clock(lookedAt)}.` : '';
    patchChildren(banner, [h('span', {}, `${error.message}${since}`)]);
    banner.hidden = false;
  },
};

// --- which view --------------------------------------------------------------------------------

function chosen() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  const parameters = new URLSearchParams(query);
  let parts;
  try {
    parts = path.split('/').map(decodeURIComponent);
  } catch {
    parts = ['topics'];
  }
  const [kind, name, tab] = parts;
  if (kind === 'topics' && name) return ['topics', topicView(app, name, tab, parameters)];
  if (kind === 'groups' && name) return ['groups', groupView(app, name, tab, parameters)];
  if (kind === 'groups') return ['groups', groupsView(app)];
  if (kind === 'changes') return ['changes', changesView()];
  if (kind === 'upkeep') return ['upkeep', upkeepView(app)];
  return ['topics', topicsView(app)];
}

let openPath = null;
let isFirstView = true;

async function open() {
  const path = location.hash.split('?')[0];
  isFirstView = openPath === null;
  if (path !== openPath) window.scrollTo(0, 0);
  openPath = path;
  view?.stop?.();
  run?.abort();
  clearTimeout(timer);
  const [kind, made] = chosen();
  view = made;
  data = undefined;
  for (const link of document.querySelectorAll('header nav a')) {
    if (link.dataset.view === kind) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.title = `${view.title} – offsetlog`;
  main.setAttribute('aria-busy', 'true');
  await look(true);
}

async function look(first = false) {
  clearTimeout(timer);
  run?.abort();
  const mine = new AbortController();
  run = mine;
  const looking = view;
  try {
    if (!app.state || failures) app.state = (await get('api/state', {}, mine.signal)).document;
    const { document: groups, at, pause } = await get('api/groups', {}, mine.signal);
    app.groups = groups;
    app.state.pause_ms = pause ?? app.state.pause_ms;
    for (const group of groups) app.addPoint(group.name, at, group);
    if (first || data === undefined || !looking.once || looking.button) {
      const loaded = await looking.load(mine.signal);
      if (mine.signal.aborted || looking !== view) return;
      data = loaded;
    }
    lookedAt = at ?? lookedAt;
    app.reached();
    pulse.textContent = `looked at ${clock(lookedAt)}`;
    draw(first);
  } catch (error) {
    if (mine.signal.aborted) return;
    app.failed(error);
    if (data === undefined) main.replaceChildren(h('h1', {}, view.title), h('p', { class: 'empty' }, error.message));
  } finally {
    if (run === mine) {
      main.removeAttribute('aria-busy');
      plan();
    }
  }
}

/** When to look again. */
function plan() {
  clearTimeout(timer);
  let pause = Math.max(LEAST_PAUSE_MS, app.state?.pause_ms ?? 0) * (view.every?.(data) ?? 1);
  if (view.soon?.(data)) pause = Math.min(pause, LEAST_PAUSE_MS);
  if (failures) pause = Math.min(MOST_PAUSE_MS, LEAST_PAUSE_MS * 2 ** Math.min(failures, 5));
  if (app.idleMs() > IDLE_MS) pause = Math.max(pause, IDLE_PAUSE_MS);
  timer = setTimeout(tick, pause);
}

async function tick() {
  // A list that goes on by a button is not read again by itself, and the curves go on.
  if (view.button) {
    try {
      const { document: groups, at } = await get('api/groups');
      app.groups = groups;
      for (const group of groups) app.addPoint(group.name, at, group);
      app.reached();
    } catch (error) {
      app.failed(error);
    }
    plan();
    return;
  }
  await look();
}

function draw(first = false) {
  if (data === undefined) return;
  const fresh = h('main', {}, view.render(data));
  if (first) {
    main.replaceChildren(...fresh.childNodes);
    // Who came by a link goes on reading where the view begins; at first, at the page's own top.
    if (!isFirstView && document.activeElement === document.body) main.focus({ preventScroll: true });
  } else {
    patchChildren(main, [...fresh.childNodes]);
  }
}

// --- the rest of the page ----------------------------------------------------------------------

const stored = {
  get(name) {
    try {
      return localStorage.getItem(`offsetlog.${name}`);
    } catch {
      return null;
    }
  },
  set(name, value) {
    try {
      localStorage.setItem(`offsetlog.${name}`, value);
    } catch {
      // Without storage the choice lasts as long as the page.
    }
  },
};

const THEMES = ['auto', 'dark', 'light'];
const themeButton = document.getElementById('theme');

function setTheme(theme) {
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  themeButton.textContent = `Theme: ${theme}`;
  stored.set('theme', theme);
}

themeButton.onclick = () => {
  const now = document.documentElement.dataset.theme ?? 'auto';
  setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
};
setTheme(THEMES.includes(stored.get('theme')) ? stored.get('theme') : 'auto');

const SHORTCUTS = [
  ['/', 'go to the search'], ['t', 'topics'], ['g', 'groups'], ['c', 'what changed'], ['u', 'upkeep'],
  ['r', 'look again now'], ['?', 'these keys'],
];
let shortcuts = stored.get('keys') !== 'off';

function drawKeys() {
  const on = h('input', {
    type: 'checkbox', checked: shortcuts,
    onchange: event => {
      shortcuts = event.target.checked;
      stored.set('keys', shortcuts ? 'on' : 'off');
    },
  });
  keys.replaceChildren(
    h('h2', { id: 'keys-title' }, 'Keys'),
    h('dl', { class: 'keys' }, SHORTCUTS.map(([key, text]) => h('div', {}, h('dt', {}, h('kbd', {}, key)), h('dd', {}, text)))),
    h('p', {}, h('label', {}, on, ' Keys are on')),
    h('p', {}, h('button', { type: 'button', onclick: () => keys.close() }, 'Close')));
}

function showKeys() {
  drawKeys();
  if (!keys.open) keys.showModal();
}

document.getElementById('help').onclick = showKeys;

document.addEventListener('keydown', event => {
  lastActive = Date.now();
  const typing = event.target.closest?.('input, textarea, select, dialog');
  if (!shortcuts || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const act = {
    '/': () => document.querySelector('[data-search]')?.focus(),
    t: () => app.go('#/topics'),
    g: () => app.go('#/groups'),
    c: () => app.go('#/changes'),
    u: () => app.go('#/upkeep'),
    r: () => look(),
    '?': showKeys,
  }[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});

for (const kind of ['pointerdown', 'pointermove', 'wheel', 'touchstart']) {
  document.addEventListener(kind, () => {
    const back = app.idleMs() > IDLE_MS;
    lastActive = Date.now();
    if (back) look();
  }, { passive: true });
}
document.addEventListener('visibilitychange', () => {
  if (document.hidden) return;
  lastActive = Date.now();
  look();
});

window.addEventListener('hashchange', open);
try {
  app.state = (await get('api/state')).document;
  const address = document.getElementById('address');
  patch(address, h('span', { id: 'address', class: 'address', title: app.state.url }, app.state.url));
} catch (error) {
  app.failed(error);
}
open();
