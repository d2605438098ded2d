// A live tail of a topic: new records on top. The button and scrolling pause the tail, which then
// counts the new records.
import { useEffect, useRef, useState } from "../vendor/hooks.mjs";
import { ApiError, query } from "../api.mjs";
import { count, time, visible } from "../format.mjs";
import { change, param } from "../place.mjs";
import {
  FilterHelp,
  FormatChoices,
  Isolation,
  More,
  RecordPanel,
  TextChoice,
  TopicHead,
  chosen,
  recordColumns,
  recordKey,
} from "../record_parts.mjs";
import { ROWS_KEPT } from "../scan.mjs";
import { Badge, Empty, Failure, Link, VirtualTable, html } from "../ui.mjs";

const NOTES_KEPT = 5;

const fresh = () => ({ state: "connecting", why: "", rows: [], received: 0, matched: 0, shown: 0, skipped: 0, sampled: 0,
  notes: [], since: Date.now(), error: null });

/**
 * Adds an event to the tail. New rows are put into `waiting`, where they stay while it is paused.
 */
function take(tail, event) {
  if (event.state) {
    tail.state = event.state;
    tail.why = event.why ?? "";
    return;
  }
  tail.received += event.received;
  tail.matched += event.matched;
  tail.skipped += event.skipped;
  tail.shown += event.rows.length;
  tail.sampled = event.matched > event.rows.length ? Math.round(event.matched / Math.max(event.rows.length, 1)) : 0;
  tail.notes = [...event.notes, ...tail.notes].slice(0, NOTES_KEPT);
  tail.waiting = [...event.rows.reverse(), ...(tail.waiting ?? [])].slice(0, ROWS_KEPT);
}

function useTail(params) {
  const tail = useRef(fresh());
  const [version, setVersion] = useState(0);
  const [turn, setTurn] = useState(0);
  const paused = useRef(null);
  const redraw = () => setVersion((old) => old + 1);
  const flush = () => {
    const { waiting = [], rows } = tail.current;
    tail.current.rows = [...waiting, ...rows].slice(0, ROWS_KEPT);
    tail.current.waiting = [];
  };
  useEffect(() => {
    tail.current = fresh();
    paused.current = null;
    redraw();
    let retry = 0;
    const source = new EventSource(`/api/tail${query(params)}`);
    source.onmessage = ({ data }) => {
      const event = JSON.parse(data);
      if (event.error) {
        tail.current.error = new ApiError(event.error, 0);
        tail.current.state = "ended";
        source.close();
      } else {
        take(tail.current, event);
        if (!paused.current) flush();
      }
      redraw();
    };
    source.onerror = () => {
      if (tail.current.state === "ended") return;
      tail.current.state = "lost";
      tail.current.why = "The console does not answer. This page tries again by itself.";
      redraw();
      // A browser gives up after an answer that is no stream.
      if (source.readyState === EventSource.CLOSED) retry = setTimeout(() => setTurn((old) => old + 1), 3000);
    };
    return () => {
      clearTimeout(retry);
      source.close();
    };
  }, [JSON.stringify(params), turn]);
  return {
    // A new object: parts of the page are drawn again if their parameters change.
    tail: { ...tail.current },
    version,
    paused: paused.current,
    pause: (why) => {
      if (paused.current) return;
      paused.current = { why, matched: tail.current.matched, received: tail.current.received };
      redraw();
    },
    resume: () => {
      paused.current = null;
      flush();
      redraw();
    },
    clear: () => {
      Object.assign(tail.current, fresh(), { state: tail.current.state });
      redraw();
    },
    again: () => setTurn((old) => old + 1),
  };
}

const STATES = {
  connecting: ["none", "Connecting"],
  live: ["good", "Live"],
  lost: ["error", "No connection"],
  ended: ["error", "Ended"],
};

function Banner({ tail, paused, resume }) {
  if (!paused) return null;
  const since = tail.matched - paused.matched;
  return html`<p class="banner" role="status">
    <strong>Paused</strong>${paused.why === "scroll" ? " because you scrolled" : ""}: ${count(since)}
    ${since === 1 ? " record" : " records"} since you paused${since > ROWS_KEPT ? `; the newest ${count(ROWS_KEPT)} are kept` : ""}.
    <button class="primary" onClick=${resume}>Resume</button>
  </p>`;
}

function Counts({ tail }) {
  const some = tail.shown < tail.matched;
  return html`<p class="faint" role="status">
    ${tail.sampled > 1 && html`<${Badge} level="warning">1 of ${count(tail.sampled)} shown<//> `}
    ${count(tail.received)} received since ${time(tail.since).slice(11, 19)}${param("filter") ? `, ${count(tail.matched)} match` : ""}${some
      ? `, ${count(tail.shown)} of them shown: this is a sample`
      : ""}.
    ${tail.skipped > 0 && ` ${count(tail.skipped)} offsets were skipped to keep up.`}
    ${tail.notes.map((note) => ` ${visible(note)}`)}
  </p>`;
}

export default function Tail({ about }) {
  const name = param("name");
  const params = chosen();
  const { tail, version, paused, pause, resume, clear, again } = useTail(params);
  const box = useRef(null);
  const panel = param("record");
  useEffect(() => {
    const element = box.current.querySelector(".scroll");
    const scroll = () => element.scrollTop > 8 && pause("scroll");
    element.addEventListener("scroll", scroll, { passive: true });
    return () => element.removeEventListener("scroll", scroll);
  });
  const goOn = () => {
    box.current.querySelector(".scroll").scrollTop = 0;
    resume();
  };
  const [level, words] = STATES[tail.state];
  const rows = tail.rows;
  return html`
    <${TopicHead} name=${name} tab="tail">
      <${Badge} level=${level}>${words}<//>
      ${paused ? html`<button class="primary" onClick=${goOn}>Resume</button>` : html`<button onClick=${() => pause("button")}>Pause</button>`}
      <button onClick=${clear}>Clear</button>
    <//>
    <div class="controls" role="search">
      <${TextChoice} name="filter" label="Filter" placeholder="text, key=…, $.path=…  ( / )" width="22rem" search=${true} />
    </div>
    <${More} names=${["partitions", "isolation", "key_format", "value_format"]}>
      <${TextChoice} name="partitions" label="Partitions" placeholder="all, or 0,4-7" />
      <${Isolation} />
      <${FormatChoices} formats=${about.formats} />
      <${FilterHelp} />
    <//>
    <${Failure} error=${tail.error} retry=${again} />
    ${tail.state === "lost" && html`<p class="banner error" role="alert">${visible(tail.why)}</p>`}
    <${Banner} tail=${tail} paused=${paused} resume=${goOn} />
    <${Counts} tail=${tail} />
    <div class=${panel ? "with-panel" : "without-panel"} ref=${box}>
      <${VirtualTable}
        label="New records"
        columns=${recordColumns(rows)}
        load=${async (offset, limit) => ({ rows: rows.slice(offset, offset + limit), total: rows.length })}
        reset=${JSON.stringify(params)}
        refresh=${version}
        sort=""
        rowKey=${recordKey}
        open=${(row) => change({ record: `${row.partition}:${row.offset}` })}
        empty=${html`<${Empty} title="Waiting for new records …">
          Older ones are under <${Link} to="/topic/records" params=${{ name }}>Records<//>.${" "}
          ${about.write ? html`<${Link} to="/write" params=${{ do: "produce", topic: name }}>Write one<//>` : html`Write some: <code>odradek produce ${visible(name)}</code>`}
        <//>`}
      />
      ${panel && html`<${RecordPanel} topic=${name} rows=${rows} />`}
    </div>
  `;
}
