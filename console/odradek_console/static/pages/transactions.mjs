// Transactional ids: open transactions first, with the offsets that they hold back.
import { useState } from "../vendor/hooks.mjs";
import { get, useLive } from "../api.mjs";
import { count, duration, visible } from "../format.mjs";
import { change, go, param } from "../place.mjs";
import { Badge, Empty, Failure, Heading, Link, Name, NoneYet, Search, Time, TimeHead, VirtualTable, html } from "../ui.mjs";

const LEVELS = { Ongoing: "warning", PrepareCommit: "warning", PrepareAbort: "warning", CompleteCommit: "good", CompleteAbort: "none", Dead: "error" };

export const TransactionState = ({ state }) => html`<${Badge} level=${LEVELS[state] ?? "none"}>${visible(state)}<//>`;

export const timeoutOf = (row) => (row.has_timeout ? duration(row.timeout_ms) : "none (two-phase commit)");

/** The time since a transaction began; after its timeout it is an error. */
export function Age({ row, now }) {
  if (row.start_ms === null || row.start_ms === undefined) return html`<span class="faint">–</span>`;
  const age = Math.max(0, now - row.start_ms);
  return row.has_timeout && age > row.timeout_ms ? html`<${Badge} level="error">${duration(age)}, past its timeout<//>` : duration(age);
}

const columns = (now) => [
  { key: "transactional_id", label: "Transactional id", sort: true, narrow: "12rem", cell: (row) => html`<${Link} to="/transaction" params=${{ id: row.transactional_id }}><${Name} text=${row.transactional_id} /><//>` },
  { key: "state", label: "State", sort: true, width: "10rem", narrow: "8.5rem", cell: (row) => html`<${TransactionState} state=${row.state} />` },
  { key: "start_ms", label: html`<${TimeHead} label="Open since" />`, sort: true, width: "15rem", cell: (row) => html`<${Time} ms=${row.start_ms} />` },
  { key: "age", label: "Open for", width: "11rem", narrow: "7rem", cell: (row) => html`<${Age} row=${row} now=${now} />` },
  { key: "timeout", label: "Timeout", align: "right", width: "14rem", cell: timeoutOf },
  { key: "partitions", label: "Partitions", align: "right", width: "6.5rem", cell: (row) => count(row.partitions) },
  { key: "hidden", label: "Held back", align: "right", width: "6.5rem", cell: (row) => count(row.hidden) },
  { key: "producer_id", label: "Producer id", sort: true, align: "right", width: "7.5rem", cell: (row) => html`<${Link} to="/producer" params=${{ id: row.producer_id }}>${row.producer_id}<//>` },
];

export default function Transactions() {
  const { data, error, at } = useLive("transactions");
  const [about, setAbout] = useState({ states: {}, open: 0, now_ms: 0 });
  const wanted = { filter: param("filter"), state: param("state") };
  const load = async (offset, limit, sort, signal) => {
    const page = await get("/transactions", { offset, limit, sort, ...wanted }, signal);
    setAbout(page);
    return page;
  };
  return html`
    <${Heading} title="Transactions" about=${data && `${count(data.open.length)} open of ${count(data.total)} transactional ids`}>
      <${Search} label="Search transactional ids" />
      <label class="choice">
        <span>State</span>
        <select value=${wanted.state} onChange=${({ target }) => change({ state: target.value })}>
          <option value="">all</option>
          <option value="open">open (${count(about.open)})</option>
          ${Object.entries({ ...(["", "open"].includes(wanted.state) ? {} : { [wanted.state]: 0 }), ...about.states }).map(
            ([state, number]) => html`<option value=${state}>${visible(state)} (${count(number)})</option>`,
          )}
        </select>
      </label>
    <//>
    <${Failure} error=${error} at=${data ? at : null} />
    <${VirtualTable}
      label="Transactions"
      columns=${columns(about.now_ms)}
      load=${load}
      reset=${JSON.stringify(wanted)}
      refresh=${at ?? 0}
      sort="start_ms"
      rowKey=${(row) => row.transactional_id}
      open=${(row) => go("/transaction", { id: row.transactional_id })}
      empty=${wanted.filter || wanted.state
        ? html`<${Empty} title="No transactional id is like this" />`
        : html`<${NoneYet} title="No transactional ids to show" />`}
    />
    <p class="faint">Held back: offsets between the last stable offset and the end of the transaction's partitions. Consumers with read_committed wait for them.</p>
  `;
}
