// Requests to the page's own server. Addresses are relative, so that a proxy may put it anywhere.

export class ApiError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

const PATIENCE_MS = 45_000;

async function ask(path, options) {
  let answer;
  const timeout = AbortSignal.timeout(PATIENCE_MS);
  const signal = options.signal ? AbortSignal.any([options.signal, timeout]) : timeout;
  try {
    answer = await fetch(path, { ...options, signal, credentials: 'same-origin', redirect: 'error' });
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
