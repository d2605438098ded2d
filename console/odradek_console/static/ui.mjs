// Shared parts of pages. All text goes through `html` templates, which escape it.
import { h } from "./vendor/preact.mjs";
import { useEffect, useLayoutEffect, useRef, useState } from "./vendor/hooks.mjs";
import htm from "./vendor/htm.mjs";
import { post } from "./api.mjs";
import { count, time, visible, zoneName } from "./format.mjs";
import { address, change, cluster, go, param, place } from "./place.mjs";

export const html = htm.bind(h);

/** A link inside the console; it keeps the time zone. */
export function Link({ to, params, children, ...rest }) {
  // The zone is read while rendering, so that a change of the zone changes the link.
  place.value;
  const href = address(to, params);
  const follow = (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    go(to, params);
  };
  return html`<a href=${href} onClick=${follow} ...${rest}>${children}</a>`;
}

/** The head of a page: its title and its actions. */
export function Heading({ title, about, children }) {
  useEffect(() => {
    document.title = [title, cluster.value, "Odradek"].filter(Boolean).join(" – ");
  }, [title]);
  return html`<header class="heading">
    <h1>${visible(title)}</h1>
    ${about && html`<p class="about">${about}</p>`}
    <div class="actions">${children}</div>
  </header>`;
}

const DATE_END = 11;

/** A time in the zone of the page, or its time of day if `short`; the tooltip has the whole time. */
export function Time({ ms, short = false }) {
  const text = time(ms);
  if (ms === null || ms === undefined || ms < 0) return html`<span class="faint">${text}</span>`;
  return html`<time title=${`${text} (${zoneName()}); ${ms} ms since 1970`}>${short ? text.slice(DATE_END) : text}</time>`;
}

/** The head of a column of times, with their zone. */
export const TimeHead = ({ label }) => html`${label} <span class="faint">(${zoneName()})</span>`;

// The style sheet has the same number.
const NAME_END = 9;
const NAME_SHORT_MAX = 24;

/**
 * A name with its control characters made visible. A name that is too long for its place loses its
 * middle, because many ids differ only at the end.
 */
export function Name({ text }) {
  const shown = visible(text);
  const cut = shown.length > NAME_SHORT_MAX ? shown.length - NAME_END : 0;
  return html`<span class="name" title=${shown} aria-label=${cut ? shown : null}>${cut ? html`<span>${shown.slice(0, cut)}</span>${shown.slice(cut)}` : shown}</span>`;
}

/** The empty state of a page or list: a title, the reason, and a next step. */
export const Empty = ({ title, children }) => html`<div class="empty">
  <p class="empty-title">${title}</p>
  ${children && html`<div class="faint">${children}</div>`}
</div>`;

/** The empty state of a list without a filter, with the right to see more as a reason. */
export const NoneYet = ({ title, children }) => html`<${Empty} title=${title}>
  None yet, or none that <${Link} to="/access">you may see<//>. ${children}
<//>`;

/**
 * An error of the server. `at`: the time of the older data that are still shown, if there are any.
 */
export function Failure({ error, at, retry }) {
  if (!error) return null;
  return html`<div class="failure" role="alert">
    <p><strong>${error.message}</strong></p>
    ${error.detail && html`<p class="detail">${visible(error.detail)}</p>`}
    ${error.what_to_do && html`<p>${error.to ? html`<${Link} to=${error.to}>${error.what_to_do}<//>` : error.what_to_do}</p>`}
    ${at && html`<p class="faint">What is shown is of ${time(at)} (${zoneName()}).</p>`}
    ${retry && html`<button onClick=${retry}>Try again</button>`}
  </div>`;
}

/** The reasons why parts of the page are missing. */
export const Missing = ({ reasons }) =>
  reasons?.length
    ? html`<ul class="missing">
        ${reasons.map((each) => html`<li>${visible(each)}</li>`)}
      </ul>`
    : null;

export const Loading = () => html`<p class="loading" role="status">Loading …</p>`;

/** A coloured word: `level` is "good", "warning", "error" or "none". */
export const Badge = ({ level = "none", children }) => html`<span class=${`badge ${level}`}>${children}</span>`;

/** A figure with its name. */
export const Figure = ({ label, value, note, to, params }) => html`<div class="figure">
  <span class="figure-label">${label}</span>
  <span class="figure-value">${to ? html`<${Link} to=${to} params=${params}>${value}<//>` : value}</span>
  ${note && html`<span class="faint">${note}</span>`}
</div>`;

/** Problems in sentences: `{level, text, to}`. `to`: the address of the page about the problem. */
export const Sentences = ({ rows }) => html`<ul class="sentences">
  ${rows.map(
    ({ level, text, to }) => html`<li class=${level}>
      <${Badge} level=${level}>${level}<//> ${to ? html`<${Link} to=${to}>${visible(text)}<//>` : visible(text)}
    </li>`,
  )}
</ul>`;

/** A field for the search, kept in the parameter `name` of the address; `/` goes to it. */
export function Search({ name = "filter", label }) {
  const [text, setText] = useState(param(name));
  const timer = useRef(0);
  const type = ({ target }) => {
    setText(target.value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => change({ [name]: target.value }), 250);
  };
  return html`<input
    type="search"
    data-search
    aria-label=${label}
    placeholder=${`${label}  ( / )`}
    value=${text}
    onInput=${type}
  />`;
}

/** A check box, kept in the parameter `name` of the address. */
export const Toggle = ({ name, label }) => html`<label class="toggle">
  <input
    type="checkbox"
    checked=${param(name) === "1"}
    onChange=${({ target }) => change({ [name]: target.checked ? "1" : "" })}
  />
  ${label}
</label>`;

/**
 * A table of few rows, with a scroll bar if it is too wide; `heads` are `{label, align}` or texts.
 */
export const Table = ({ label, heads, children }) => html`<div class="wide" tabindex="0" role="region" aria-label=${label}>
  <table>
    <thead>
      <tr>
        ${heads.map((head) => html`<th scope="col" class=${head.align ?? ""}>${head.label ?? head}</th>`)}
      </tr>
    </thead>
    <tbody>
      ${children}
    </tbody>
  </table>
</div>`;

const ROW_PX = 32;
// The line of the total, and the borders.
const TABLE_END_PX = 25;
const NARROW = matchMedia("(max-width: 700px)");

/** True while the window is narrow. */
export function useNarrow() {
  const [narrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const changed = () => setNarrow(NARROW.matches);
    NARROW.addEventListener("change", changed);
    return () => NARROW.removeEventListener("change", changed);
  }, []);
  return narrow;
}

const PAGE_ROWS = 100;
const PAGES_KEPT = 12;
// Browsers cannot scroll in elements that are much higher.
const ROWS_MAX = 300_000;

/**
 * A table of any length: only the rows in view are asked for and drawn.
 *
 * `columns`: `{key, label, cell(row), sort, align, width, narrow}`; with `sort` the head sorts by
 * `key`, which the parameter `sort` of the address keeps. `narrow`: the width in a narrow window,
 * which shows no other columns; without any `narrow` it shows all. `load(offset, limit, sort,
 * signal)` returns a promise of `{rows, total}`. `reset`: a new value means other rows; `refresh`: a
 * new value means that the same rows may have changed. `open(row)`: called for Enter and for a click.
 */
export function VirtualTable({ columns: every, load, reset = "", refresh = 0, sort, open, rowKey, label, empty }) {
  const some = useNarrow() && every.some(({ narrow }) => narrow);
  const columns = some ? every.filter(({ narrow }) => narrow).map((each) => ({ ...each, width: each.narrow })) : every;
  const order = param("sort") || sort;
  const box = useRef(null);
  const body = useRef(null);
  const pages = useRef(new Map());
  const [, redraw] = useState(0);
  const [view, setView] = useState({ first: 0, rows: 30 });
  const [total, setTotal] = useState(null);
  const [error, setError] = useState(null);
  const [chosen, setChosen] = useState(-1);
  const subject = `${reset}\n${order}`;

  useEffect(() => {
    pages.current = new Map();
    setTotal(null);
    setError(null);
    setChosen(-1);
    if (box.current) box.current.scrollTop = 0;
    setView((old) => ({ ...old, first: 0 }));
  }, [subject]);

  const firstPage = Math.floor(view.first / PAGE_ROWS);
  const lastPage = Math.floor((view.first + view.rows) / PAGE_ROWS);
  useEffect(() => {
    const stop = new AbortController();
    const fetchPage = async (number) => {
      try {
        const { rows, total } = await load(number * PAGE_ROWS, PAGE_ROWS, order, stop.signal);
        if (stop.signal.aborted) return;
        pages.current.delete(number);
        pages.current.set(number, { rows, refresh, subject });
        while (pages.current.size > PAGES_KEPT) pages.current.delete(pages.current.keys().next().value);
        setTotal(total);
        setError(null);
        redraw((old) => old + 1);
      } catch (failed) {
        if (!stop.signal.aborted) setError(failed);
      }
    };
    // Pages that are scrolled past at once are not asked for.
    const timer = setTimeout(() => {
      for (let number = firstPage; number <= lastPage; number++) {
        const page = pages.current.get(number);
        if (page?.refresh !== refresh || page.subject !== subject) fetchPage(number);
      }
    }, 40);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [firstPage, lastPage, subject, refresh]);

  useLayoutEffect(() => {
    const element = box.current;
    const measure = () =>
      setView((old) => {
        const first = Math.max(0, Math.floor(element.scrollTop / ROW_PX) - 5);
        const rows = Math.ceil(element.clientHeight / ROW_PX) + 10;
        return old.first === first && old.rows === rows ? old : { first, rows };
      });
    measure();
    element.addEventListener("scroll", measure, { passive: true });
    const watch = new ResizeObserver(measure);
    watch.observe(element);
    return () => {
      element.removeEventListener("scroll", measure);
      watch.disconnect();
    };
  }, []);

  const rowAt = (index) => pages.current.get(Math.floor(index / PAGE_ROWS))?.rows[index % PAGE_ROWS];
  const shownTotal = Math.min(total ?? 0, ROWS_MAX);
  const end = Math.min(view.first + view.rows, shownTotal);

  const choose = (index) => {
    const bounded = Math.max(0, Math.min(index, shownTotal - 1));
    setChosen(bounded);
    const top = bounded * ROW_PX;
    const head = ROW_PX;
    const element = box.current;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + 2 * head > element.scrollTop + element.clientHeight)
      element.scrollTop = top + 2 * head - element.clientHeight;
  };
  const press = (event) => {
    const page = Math.max(1, view.rows - 12);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps && shownTotal) {
      event.preventDefault();
      choose(chosen + steps[event.key]);
    } else if (event.key === "Enter" && open && chosen >= 0 && event.target === box.current) {
      const row = rowAt(chosen);
      if (row) open(row);
    }
  };

  const click = (event, index, row) => {
    setChosen(index);
    // A click on a link or a button is theirs, and text that is selected is not clicked.
    if (row && !event.target.closest("a, button") && getSelection().isCollapsed) open?.(row);
  };

  const drawn = [];
  for (let index = view.first; index < end; index++) {
    const row = rowAt(index);
    drawn.push(html`<tr
      key=${row && rowKey ? rowKey(row) : index}
      aria-rowindex=${index + 2}
      class=${`${index === chosen ? "chosen" : ""} ${open ? "opens" : ""}`}
      onClick=${(event) => click(event, index, row)}
    >
      ${columns.map(
        ({ cell, align }) => html`<td class=${align ?? ""}>${row ? cell(row) : html`<span class="faint">…</span>`}</td>`,
      )}
    </tr>`);
  }

  const height = shownTotal > 0 ? { "--rows": `${(shownTotal + 1) * ROW_PX + TABLE_END_PX}px` } : {};
  return html`<div class="table" style=${height}>
    <${Failure} error=${error} />
    <div
      class="scroll"
      ref=${box}
      tabindex="0"
      role="region"
      aria-label=${label}
      aria-busy=${total === null && !error}
      onKeyDown=${press}
    >
      <table aria-rowcount=${shownTotal + 1} style=${{ minWidth: leastWidth(columns) }}>
        <thead>
          <tr aria-rowindex="1">
            ${columns.map((column) => html`<${Head} column=${column} order=${order} />`)}
          </tr>
        </thead>
        <tbody ref=${body}>
          ${view.first > 0 && html`<${Spacer} rows=${Math.min(view.first, shownTotal)} columns=${columns.length} />`}
          ${drawn}
          ${end < shownTotal && html`<${Spacer} rows=${shownTotal - end} columns=${columns.length} />`}
        </tbody>
      </table>
      ${total === 0 && !error && (empty ?? html`<${Empty} title="Nothing here" />`)}
      ${total === null && !error && html`<${Loading} />`}
    </div>
    <p class="total" role="status">
      ${total !== null && `${count(total)} in all`}
      ${total > ROWS_MAX && `; the first ${count(ROWS_MAX)} can be reached, search for the others`}
    </p>
  </div>`;
}

const leastWidth = (columns) => `calc(${columns.map(({ width }) => width ?? "14rem").join(" + ")})`;

const Spacer = ({ rows, columns }) =>
  html`<tr aria-hidden="true" class="spacer"><td colspan=${columns} style=${{ height: `${rows * ROW_PX}px` }}></td></tr>`;

function Head({ column, order }) {
  const { key, label, sort, align, width } = column;
  const style = width ? { width } : {};
  if (!sort) return html`<th scope="col" class=${align ?? ""} style=${style}>${label}</th>`;
  const up = order === key;
  const down = order === `-${key}`;
  return html`<th
    scope="col"
    class=${align ?? ""}
    style=${style}
    aria-sort=${up ? "ascending" : down ? "descending" : "none"}
  >
    <button class="sort" onClick=${() => change({ sort: down ? key : up ? `-${key}` : align === "right" ? `-${key}` : key })}>
      ${label} <span aria-hidden="true">${up ? "▲" : down ? "▼" : ""}</span>
    </button>
  </th>`;
}

/**
 * A change in two steps: the server makes a plan of `body`, `draw(plan)` shows the plan, and the
 * person confirms it. `close(result)` is called at the end, with null if nothing was changed.
 */
export function ChangeDialog({ title, path, body, draw, action, close, danger = false }) {
  const [state, setState] = useState({ answer: null, error: null, busy: true });
  const dialog = useRef(null);
  const plan = async (error = null) => {
    setState({ answer: null, error, busy: true });
    try {
      setState({ answer: await post(path, body), error, busy: false });
    } catch (failed) {
      setState({ answer: null, error: failed, busy: false });
    }
  };
  useEffect(() => {
    dialog.current.showModal();
    plan();
  }, []);
  const act = async () => {
    setState((old) => ({ ...old, busy: true, error: null }));
    try {
      const { send, again } = state.answer;
      close((await post(path, { ...send, ...Object.fromEntries(again.map((name) => [name, body[name]])) })).result);
    } catch (failed) {
      if (failed.status === 409) plan(failed);
      else setState((old) => ({ ...old, busy: false, error: failed }));
    }
  };
  return html`<dialog ref=${dialog} onCancel=${() => close(null)} aria-label=${title}>
    <h2>${title}</h2>
    <${Failure} error=${state.error} />
    ${state.answer ? draw(state.answer.plan) : state.busy && html`<${Loading} />`}
    <div class="actions">
      <button onClick=${() => close(null)}>Cancel</button>
      <button class=${danger ? "danger" : "primary"} disabled=${!state.answer || state.busy} onClick=${act}>
        ${action}
      </button>
    </div>
  </dialog>`;
}
