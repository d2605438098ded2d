// Requests to the console's server: JSON, and events of feeds that change by themselves.
import { useEffect, useRef, useState } from "./vendor/hooks.mjs";
import { signal } from "./vendor/signals.mjs";
import { cluster } from "./place.mjs";

/** An error of the server, with the fields of the server's `Refusal`. */
export class ApiError extends Error {
  constructor({ title, detail = "", what_to_do = "", to = "" }, status) {
    super(title);
    Object.assign(this, { detail, what_to_do, to });
    this.status = status;
  }
}

const LOST = {
  title: "The console does not answer",
  what_to_do: "See whether `odradek console` still runs. This page tries again by itself.",
};

/** Parameters as a query, with the page's cluster; null and undefined are left out, arrays repeated. */
export function query(params = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined) search.append(name, each);
    }
  }
  if (cluster.value) search.append("cluster", cluster.value);
  const text = search.toString();
  return text ? `?${text}` : "";
}

/** A number that grows when a session begins or ends: the frame then asks who is signed in. */
export const signedOut = signal(0);

async function ask(path, options) {
  let response;
  try {
    response = await fetch(`/api${path}`, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(LOST, 0);
  }
  let body;
  try {
    body = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    body = {};
  }
  if (response.ok) return body;
  if (response.status === 401) signedOut.value += 1;
  throw new ApiError(body.error ?? { title: `HTTP ${response.status}` }, response.status);
}

/** GET a view. Throws ApiError. */
export const get = (path, params, signal) => ask(path + query(params), { signal });

/** POST JSON to a view. Throws ApiError. */
export const post = (path, body) =>
  ask(path + query(), {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Odradek-Console": "1" },
    body: JSON.stringify(body),
  });

/**
 * A view, asked again whenever the parameters change, and every `everyMs` if that is given.
 * Returns `{data, error, loading, reload}`; the last data stay while new ones are on their way.
 */
export function useAsked(path, params = {}, { everyMs = 0 } = {}) {
  const [state, setState] = useState({ data: null, error: null, loading: true });
  const [turn, setTurn] = useState(0);
  const key = path + query(params);
  const last = useRef(key);
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    if (last.current !== key) setState((old) => ({ ...old, loading: true }));
    last.current = key;
    const round = async () => {
      try {
        const data = await get(path, params, stop.signal);
        if (!stop.signal.aborted) setState({ data, error: null, loading: false });
      } catch (error) {
        if (stop.signal.aborted) return;
        setState((old) => ({ data: old.data, error, loading: false }));
      }
      if (everyMs && !stop.signal.aborted) timer = setTimeout(round, everyMs);
    };
    round();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [key, everyMs, turn]);
  return { ...state, reload: () => setTurn((old) => old + 1) };
}

/** The state of the events: "none", "connecting", "live", "gone" (no broker answers) or "lost". */
export const connection = signal("none");

const RETRY_MS = [1000, 2000, 4000, 8000];
// Feed to the functions that take its events.
const takers = new Map();
// The last event of each feed that has takers.
const latest = new Map();
let source = null;
let opened = "";
let failures = 0;
let timer = 0;

function open() {
  clearTimeout(timer);
  const feeds = [...takers.keys()].sort();
  const wanted = query({ feed: feeds });
  if (source && wanted === opened) return;
  source?.close();
  source = null;
  opened = wanted;
  if (!feeds.length) {
    connection.value = "none";
    return;
  }
  if (connection.value !== "lost") connection.value = "connecting";
  const mine = (source = new EventSource(`/api/live${wanted}`));
  mine.onopen = () => {
    failures = 0;
    connection.value = "live";
  };
  mine.onmessage = ({ data }) => {
    const event = JSON.parse(data);
    latest.set(event.feed, event);
    connection.value = [...latest.values()].some((each) => each.error?.unreachable) ? "gone" : "live";
    for (const take of takers.get(event.feed) ?? []) take(event);
  };
  mine.onerror = () => {
    if (mine !== source) return;
    connection.value = "lost";
    // A browser gives up after an answer that is no stream; this page does not.
    if (mine.readyState === EventSource.CLOSED) {
      source = null;
      get("/console").then(
        (about) => {
          if (!about.open) signedOut.value += 1;
        },
        () => {},
      );
      timer = setTimeout(open, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]);
    }
  };
}

/** Listen to a feed: `take({data})` or `take({error})`. Returns the function that ends it. */
export function listen(feed, take) {
  if (!takers.has(feed)) takers.set(feed, new Set());
  takers.get(feed).add(take);
  if (latest.has(feed)) take(latest.get(feed));
  queueMicrotask(open);
  return () => {
    takers.get(feed)?.delete(take);
    if (!takers.get(feed)?.size) {
      takers.delete(feed);
      latest.delete(feed);
    }
    // The next page may want the same feed.
    queueMicrotask(open);
  };
}

const lost = new ApiError(LOST, 0);

/** A feed: `{data, error, at}`. After an error the last data stay; `at`: the time they came. */
export function useLive(feed) {
  const [state, setState] = useState({ data: null, error: null, at: null });
  useEffect(() => {
    setState({ data: null, error: null, at: null });
    return listen(feed, (event) =>
      setState((old) =>
        event.error
          ? { ...old, error: new ApiError(event.error, 0) }
          : { data: event.data, error: null, at: Date.now() },
      ),
    );
  }, [feed]);
  return connection.value === "lost" ? { ...state, error: lost } : state;
}
