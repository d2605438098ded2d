// Records of a topic: a scan with a budget, progress, stop and continue, and the panel of a record.
import { useEffect, useRef, useState } from "../vendor/hooks.mjs";
import { query } from "../api.mjs";
import { count, zoneName } from "../format.mjs";
import { change, param } from "../place.mjs";
import {
  Choice,
  FilterHelp,
  FormatChoices,
  Isolation,
  More,
  RecordPanel,
  TextChoice,
  TopicHead,
  chosen,
  given,
  recordColumns,
  recordKey,
} from "../record_parts.mjs";
import { BUDGETS, gaps, heldWords, ranges, run, statement } from "../scan.mjs";
import { Empty, Failure, Toggle, VirtualTable, html } from "../ui.mjs";

const SCOPES = [
  ["last", "the last records"],
  ["offset", "from an offset"],
  ["time", "from a time"],
  ["all", "everything"],
];
const ORDERS = [
  ["newest", "newest first"],
  ["oldest", "oldest first"],
];
const COUNTS = ["500", "100", "1000"].map((each) => [each, each]);

/** A scan of the records that the address chooses: `{scan, runs, go(on), stop}`. */
function useScan(params, budget) {
  const [scan, setScan] = useState(null);
  const [version, setVersion] = useState(0);
  const stopper = useRef(null);
  const key = JSON.stringify(params);
  const go = (old) => {
    stopper.current?.abort();
    const mine = (stopper.current = new AbortController());
    run(
      params,
      old,
      budget,
      (found) => {
        if (mine.signal.aborted) return;
        setScan(found);
        setVersion((turn) => turn + 1);
      },
      mine.signal,
    );
  };
  useEffect(() => {
    setScan(null);
    go(null);
    return () => stopper.current?.abort();
  }, [key]);
  const stop = () => {
    stopper.current?.abort();
    setScan((old) => ({ ...old, state: "stopped" }));
  };
  return { scan, version, subject: key, again: () => go(null), goOn: () => go(scan), stop };
}

function Exports({ params }) {
  const { cursor, ...rest } = params;
  const to = (format) => `/api/export${query({ ...rest, format })}`;
  return html`<details class="menu">
    <summary>Export</summary>
    <div>
      <a href=${to("jsonl")} download>JSON Lines</a>
      <a href=${to("csv")} download>CSV</a>
      <p class="faint">
        The records of this scope and filter, 100,000 at most. <code>odradek produce TOPIC FILE --json</code> writes the JSON
        Lines again.
      </p>
    </div>
  </details>`;
}

const ENDS = {
  spent: "There is more to read.",
  stopped: "Stopped.",
  failed: "The scan ended early.",
};

function Progress({ scan, goOn, stop, again }) {
  if (!scan) return null;
  const reading = scan.state === "reading";
  const more = !reading && (scan.cursor || scan.before);
  const words = [gaps(scan), ...heldWords(scan), ...scan.notes].filter(Boolean);
  return html`<section class="scan" aria-label="What was read">
    <div class="actions">
      ${reading
        ? html`<progress aria-label="Read so far" max=${Math.max(scan.offsets, 1)} value=${scan.offsets - scan.left}></progress>
            <button onClick=${stop}>Stop</button>`
        : html`<button onClick=${again}>Read again</button>
            ${more && html`<button onClick=${goOn}>${scan.cursor ? "Continue" : "Records before these"}</button>`}`}
      <p role="status">${reading ? "Reading … " : ""}${statement(scan)} ${ENDS[scan.state] ?? ""}</p>
    </div>
    ${words.length > 0 && html`<p class="faint">${words.join(" ")}</p>`}
    ${scan.dropped > 0 && html`<p class="faint">The page keeps 1,000 rows; ${count(scan.dropped)} earlier ones are not shown.</p>`}
    ${scan.partitions < scan.all &&
    !param("partitions") &&
    html`<p class="faint">
      The first ${count(scan.partitions)} of ${count(scan.all)} partitions are read; choose others in “Partitions”.
    </p>`}
    ${scan.read.size > 1 &&
    html`<details>
      <summary>Exactly which offsets</summary>
      <ul>
        ${ranges(scan).map((each) => html`<li>${each}</li>`)}
      </ul>
    </details>`}
  </section>`;
}

export default function Records({ about }) {
  const name = param("name");
  const scope = param("scope") || "last";
  const budget = BUDGETS[param("budget")] ?? BUDGETS.small;
  const params = { ...chosen(), ...given(["scope", "at", "order", "count", "markers"]) };
  // A scope from an offset or a time needs this start before it can be read.
  const waits = (scope === "offset" || scope === "time") && !param("at");
  return html`
    <${TopicHead} name=${name} tab="records"><${Exports} params=${params} /><//>
    <div class="controls" role="search">
      <${TextChoice} name="filter" label="Filter" placeholder="text, key=…, $.path=…  ( / )" width="22rem" search=${true} />
      <${Choice} name="scope" label="Read" options=${SCOPES} />
      ${scope === "last" && html`<${Choice} name="count" label="How many" options=${COUNTS} />`}
      ${scope === "offset" && html`<${TextChoice} name="at" label="Offset" placeholder="0" />`}
      ${scope === "time" && html`<${TextChoice} name="at" label=${`Time (${zoneName()}, or with its zone)`} placeholder="2026-05-01T12:30" width="15rem" />`}
      <${Choice} name="order" label="Order" options=${ORDERS} />
    </div>
    <${More} names=${["partitions", "isolation", "key_format", "value_format", "budget", "markers"]}>
      <${TextChoice} name="partitions" label="Partitions" placeholder="all, or 0,4-7" />
      <${Isolation} />
      <${FormatChoices} formats=${about.formats} />
      <${Choice} name="budget" label="At most" options=${Object.entries(BUDGETS).map(([key, { label }]) => [key, label])} />
      <${Toggle} name="markers" label="Markers" />
      <${FilterHelp} />
    <//>
    ${waits
      ? html`<${Empty} title=${scope === "time" ? "From which time?" : "From which offset?"}>Write it above.<//>`
      : html`<${Found} name=${name} params=${params} budget=${budget} />`}
  `;
}

function Found({ name, params, budget }) {
  const { scan, version, subject, again, goOn, stop } = useScan(params, budget);
  const rows = scan?.rows ?? [];
  const panel = param("record");
  if (scan?.error && !rows.length) return html`<${Failure} error=${scan.error} retry=${again} />`;
  return html`
    <${Failure} error=${scan?.error} retry=${goOn} />
    <${Progress} scan=${scan} goOn=${goOn} stop=${stop} again=${again} />
    <div class=${panel ? "with-panel" : "without-panel"}>
      <${VirtualTable}
        label="Records"
        columns=${recordColumns(rows)}
        load=${async (offset, limit) => ({ rows: rows.slice(offset, offset + limit), total: rows.length })}
        reset=${subject}
        refresh=${version}
        sort=""
        rowKey=${recordKey}
        open=${(row) => change({ record: `${row.partition}:${row.offset}` })}
        empty=${scan && scan.state !== "reading"
          ? html`<${Empty} title=${params.filter ? "No record matches" : "There are no records here"} />`
          : html`<${Empty} title="Reading …" />`}
      />
      ${panel && html`<${RecordPanel} topic=${name} rows=${rows} />`}
    </div>
  `;
}
