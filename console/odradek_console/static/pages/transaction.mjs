// A transactional id: its transaction, the offsets held back, the way to end it, its events.
import { useLive } from "../api.mjs";
import { Command, Events, States, TimelineLink, quoted } from "../events.mjs";
import { count, duration, visible } from "../format.mjs";
import { param } from "../place.mjs";
import { Empty, Failure, Figure, Heading, Link, Loading, Name, Table, Time, html } from "../ui.mjs";
import { Age, TransactionState, timeoutOf } from "./transactions.mjs";

const right = (label) => ({ label, align: "right" });

/** Whether somebody is left who can end the transaction, as far as the broker knows. */
function Gone({ history }) {
  const gone = history.states.find((state) => state.name === "now_transaction")?.details.gone;
  return gone && html`<p>Its client is gone: its last connection ended ${visible(gone)}.</p>`;
}

function WhatToDo({ data, write }) {
  const id = data.transactional_id;
  const abort = write
    ? html`<${Link} to="/write" params=${{ do: "abort", id }}>abort it<//>.`
    : html`<${Command}>odradek txn abort ${quoted(id)} --execute<//>`;
  if (!data.open) return html`<p>No transaction is open: this id holds nothing back.</p>`;
  if (data.state !== "Ongoing") {
    return html`<p>It is decided (${visible(data.state)}), and its markers are being written. If that does not end, look at the leaders of its partitions.</p>`;
  }
  if (!data.has_timeout) {
    return html`<p>It has no timeout: the broker waits for its client's decision (two-phase commit). To decide instead, and fence its producer: ${abort}</p>`;
  }
  const left = data.start_ms + data.timeout_ms - data.now_ms;
  return html`<p>
    ${left > 0 ? `The broker aborts it in ${duration(left)} at the latest.` : "Its timeout is over: the broker aborts it now."}
    ${" "}To end it at once, and fence its producer: ${abort}
  </p>`;
}

const Partitions = ({ data }) => html`<${Table} label="Partitions of the transaction" heads=${["Partition", ...["Last stable offset", "End", "Held back"].map(right), "Producers"]}>
    ${data.partitions.map((row) => html`<tr>
      <td><${Name} text=${`${row.topic}-${row.partition}`} /></td>
      <td class="right">${count(row.stable)}</td><td class="right">${count(row.end)}</td><td class="right">${count(row.hidden)}</td>
      <td><${Link} to="/producers" params=${{ topic: row.topic, partition: row.partition }}>Producers<//></td>
    </tr>`)}
  <//>
  ${data.partitions.length < data.partitions_total && html`<p class="faint">The first ${count(data.partitions.length)} of ${count(data.partitions_total)} are shown.</p>`}`;

const Shown = ({ data, write }) => html`
  <section class="figures" aria-label="Figures">
    <${Figure} label="Open for" value=${html`<${Age} row=${data} now=${data.now_ms} />`} note=${data.start_ms !== null && html`since <${Time} ms=${data.start_ms} />`} />
    <${Figure} label="Timeout" value=${timeoutOf(data)} />
    <${Figure} label="Producer id" value=${String(data.producer_id)} to="/producer" params=${{ id: data.producer_id }} note=${`epoch ${data.epoch}`} />
    <${Figure} label="Partitions" value=${count(data.partitions_total)} />
    <${Figure} label="Coordinator" value=${`Node ${data.coordinator}`} />
  </section>
  <section><h2>What to do</h2>${data.open && html`<${Gone} history=${data.history} />`}<${WhatToDo} data=${data} write=${write} /></section>
  ${data.partitions.length > 0 && html`<section><h2>Partitions</h2><${Partitions} data=${data} /></section>`}
`;

export default function Transaction({ about }) {
  const id = param("id");
  const { data, error, at } = useLive(`transaction:${id}`);
  const here = data?.transactional_id === id ? data : null;
  return html`
    <${Heading} title=${id} about=${here && html`<${TransactionState} state=${here.state} />`}>
      <${TimelineLink} type="transaction" name=${id} />
      ${about?.write && here?.state === "Ongoing" && html`<${Link} class="button" to="/write" params=${{ do: "abort", id }}>Abort<//>`}
    <//>
    <${Failure} error=${error} at=${here ? at : null} />
    ${here
      ? html`${here.state === "Dead"
            ? html`<${Empty} title="The transactional id has expired">This is what the broker remembers of it.<//>`
            : html`<${Shown} data=${here} write=${about?.write} />`}
          <section><h2>Recent events</h2><${States} history=${here.history} /><${Events} history=${here.history} /></section>`
      : !error && html`<${Loading} />`}
  `;
}
