// The frame around all pages: menu, zone, theme, keys; it loads a page when it is first shown.
import { render } from "./vendor/preact.mjs";
import { useEffect, useErrorBoundary, useRef, useState } from "./vendor/hooks.mjs";
import { connection, post, signedOut, useAsked } from "./api.mjs";
import { visible, zoneName } from "./format.mjs";
import { change, cluster, go, place, zone } from "./place.mjs";
import { PAGES } from "./routes.mjs";
import { Empty, Failure, Heading, Link, Loading, html } from "./ui.mjs";

const loaded = new Map();

function Page({ row, about }) {
  const [, redraw] = useState(0);
  const [error, setError] = useState(null);
  const [broken, reset] = useErrorBoundary();
  useEffect(() => {
    setError(null);
    if (broken) reset();
    if (loaded.has(row.path)) return;
    row.load().then(
      (module) => {
        loaded.set(row.path, module.default);
        redraw((old) => old + 1);
      },
      (failed) => setError(failed),
    );
  }, [row]);
  if (error) {
    return html`<${Failure} error=${{ message: "The page did not load", detail: String(error) }}
      retry=${() => location.reload()} />`;
  }
  if (broken) {
    return html`<${Failure} error=${{ message: "The page failed", detail: String(broken) }} retry=${reset} />`;
  }
  const Component = loaded.get(row.path);
  return Component ? html`<${Component} about=${about} />` : html`<${Loading} />`;
}

function Zone() {
  const known = ["utc", "local"];
  const own = Intl.supportedValuesOf?.("timeZone") ?? [];
  if (!known.includes(zone.value) && !own.includes(zone.value)) own.unshift(zone.value);
  return html`<label class="choice place">
    <span>Times</span>
    <select
      value=${zone.value}
      onChange=${({ target }) => change({ zone: target.value === "utc" ? "" : target.value })}
    >
      <option value="utc">UTC</option>
      <option value="local">${zoneName("local")}</option>
      ${own.map((name) => html`<option value=${name}>${name}</option>`)}
    </select>
  </label>`;
}

function Theme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? "system");
  const choose = ({ target }) => {
    setTheme(target.value);
    if (target.value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = target.value;
    try {
      localStorage.setItem("theme", target.value);
    } catch {
      // Without storage the choice lasts as long as the page.
    }
  };
  return html`<label class="choice place">
    <span>Theme</span>
    <select value=${theme} onChange=${choose}>
      <option value="system">System</option>
      <option value="light">Light</option>
      <option value="dark">Dark</option>
    </select>
  </label>`;
}

const STATES = {
  none: null,
  connecting: ["Connecting", "none"],
  live: ["Live", "good"],
  gone: ["Broker gone", "error"],
  lost: ["No connection", "error"],
};

function Connection() {
  const state = STATES[connection.value];
  return html`<span role="status">${state && html`<span class=${`badge ${state[1]}`}>${state[0]}</span>`}</span>`;
}

/** The choice of a cluster, which keeps the page; with one cluster the address of its brokers. */
function Cluster({ about, names }) {
  if (names.length < 2) {
    return html`<span class="bootstrap faint" title="Brokers that are asked first">${about && visible(about.bootstrap)}</span>`;
  }
  const choose = ({ target }) =>
    target.value ? go(location.pathname + location.search, { cluster: target.value }) : go("/", { cluster: "" });
  return html`<label class="choice place">
    <span>Cluster</span>
    <select value=${cluster.value} title=${about?.bootstrap} onChange=${choose}>
      <option value="">all clusters</option>
      ${names.map((name) => html`<option value=${name}>${visible(name)}</option>`)}
    </select>
  </label>`;
}

function User({ about }) {
  if (!about?.user) return null;
  const out = () => post("/sign-out", {}).finally(() => (signedOut.value += 1));
  return html`<span class="choice">
    <span class="name" title="Signed in as">${visible(about.user)}</span>
    <button onClick=${out}>Sign out</button>
  </span>`;
}

const clusters = { path: "clusters", load: () => import("./pages/clusters.mjs") };
const signIn = { path: "sign-in", load: () => import("./pages/sign_in.mjs") };

function Menu({ path, about }) {
  return html`<nav aria-label="Pages">
    ${PAGES.filter((row) => row.nav && (about.write || !row.write)).map((row) => {
      const here = path === row.path || (row.path !== "/" && path.startsWith(row.path.replace(/s$/, "")));
      return html`<${Link}
        to=${row.path}
        aria-current=${here ? "page" : null}
        title=${`g ${row.key}`}
        >${row.nav}<//
      >`;
    })}
  </nav>`;
}

const KEYS = [
  ["/", "to the search field"],
  ["↑ ↓ PgUp PgDn Home End", "move in a table"],
  ["Enter", "open the row"],
  ["Esc", "close a record, leave a field"],
  ["?", "this list"],
];

/** The list of keys, until it is closed. */
function Keys({ close, write }) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  const pages = PAGES.filter((row) => row.nav && (write || !row.write)).map((row) => [`g ${row.key}`, row.nav]);
  return html`<dialog ref=${dialog} aria-label="Keys" onClose=${close}>
    <h2>Keys</h2>
    <dl class="facts">
      ${[...KEYS, ...pages].map(([key, words]) => html`<dt><kbd>${key}</kbd></dt><dd>${words}</dd>`)}
    </dl>
    <div class="actions"><button onClick=${() => dialog.current.close()}>Close</button></div>
  </dialog>`;
}

let waitsForKey = false;

function press(event, showKeys) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    document.activeElement?.blur();
    return;
  }
  if (event.target.matches?.("input, select, textarea, [contenteditable]")) return;
  if (document.querySelector("dialog[open]")) return;
  if (waitsForKey) {
    waitsForKey = false;
    const row = PAGES.find((each) => each.nav && each.key === event.key);
    if (row) go(row.path);
  } else if (event.key === "g") {
    waitsForKey = true;
    setTimeout(() => {
      waitsForKey = false;
    }, 1500);
  } else if (event.key === "?") {
    showKeys();
  } else if (event.key === "/") {
    const search = document.querySelector("[data-search]");
    if (search) {
      event.preventDefault();
      search.focus();
      search.select();
    }
  }
}

function App() {
  const { data, error } = useAsked("/console", { turn: signedOut.value });
  // The last answer may be about the cluster before.
  const about = data?.cluster === cluster.value ? data : null;
  const names = data?.clusters ?? [];
  const [keys, showKeys] = useState(false);
  useEffect(() => {
    const pressed = (event) => press(event, () => showKeys(true));
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  const { path } = place.value;
  const all = names.length > 1 && !cluster.value;
  const row = all ? clusters : PAGES.find((each) => each.path === path);
  return html`
    <a class="skip" href="#main">To the content</a>
    <header class="top">
      <${Link} to="/" params=${{ cluster: "" }} class="brand"><img src="/static/icon.svg" alt="" width="24" height="24" />Odradek<//>
      <div class="top-right">
        <${Connection} />
        <${Cluster} about=${about} names=${names} />
        <${User} about=${about} />
        <${Zone} />
        <${Theme} />
        <button title="Keys (?)" aria-label="Keys" onClick=${() => showKeys(true)}>?</button>
      </div>
    </header>
    ${keys && html`<${Keys} close=${() => showKeys(false)} write=${about?.write} />`}
    ${about?.open && !all && html`<${Menu} path=${path} about=${about} />`}
    <main id="main" tabindex="-1">
      ${!about && html`<${Failure} error=${error} />`}
      ${about && !about.open && html`<${Page} key=${`sign-in ${cluster.value}`} row=${signIn} about=${about} />`}
      ${about?.open && row && html`<${Page} key=${`${row.path} ${cluster.value}`} row=${row} about=${about} />`}
      ${about?.open &&
      !row &&
      html`<${Heading} title="There is no such page" /><${Empty} title=${visible(path)}><${Link} to="/">To the overview<//><//>`}
    </main>
  `;
}

render(html`<${App} />`, document.getElementById("app"));
