// Requests to the page's own server. Addresses are relative, so that a proxy may put it anywhere.

export class ApiError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

const PATIENCE_MS = 45_000;

/** The token of this start, for what needs it. It comes behind the `#` of the first address and
 * stays in this tab alone: cookies go to every port of a host, and other programs listen there. */
const token = (() => {
  const key = `offsetlog.token ${new URL('.', document.baseURI).pathname}`;
  const given = /^#token=([\w-]+)$/.exec(location.hash);
  if (given) history.replaceState(null, '', location.pathname + location.search);
  try {
    if (given) sessionStorage.setItem(key, given[1]);
    return sessionStorage.getItem(key);
  } catch {
    return given?.[1] ?? null; // Without storage it lasts until the page is loaded again.
  }
})();

async function ask(path, options) {
  let answer;
  const timeout = AbortSignal.timeout(PATIENCE_MS);
  const signal = options.signal ? AbortSignal.any([options.signal, timeout]) : timeout;
  try {
    const headers = { ...options.headers, ...(token && { authorization: `Bearer ${token}` }) };
    answer = await fetch(path, { ...options, headers, signal, credentials: 'same-origin', redirect: 'error' });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, 'The server of this page does not answer.');
  }
  let document;
  try {
    document = await answer.json();
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(answer.status || 502, 'The answer was not understood. Is a proxy in between?');
  }
  if (!answer.ok) throw new ApiError(answer.status, String(document?.error ?? answer.statusText));
  const header = name => Number(answer.headers.get(`x-offsetlog-${name}`)) || null;
  return { document, at: header('at'), pause: header('pause') };
}

/** {document, at, pause}: what was asked for, when the server looked (ms since 1970), and how many
 * ms it lets pass until it looks again. */
export function get(path, parameters = {}, signal) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== '' && value !== undefined);
  const query = new URLSearchParams(given).toString();
  return ask(query ? `${path}?${query}` : path, { signal });
}

export function post(path, body, signal) {
  return ask(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    signal,
  });
}

export const topicPath = name => `api/topics/${encodeURIComponent(name)}`;
export const groupPath = name => `api/groups/${encodeURIComponent(name)}`;
