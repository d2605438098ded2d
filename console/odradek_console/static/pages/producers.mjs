// The producers of a partition, or one producer id.
import { useEffect, useState } from "../vendor/hooks.mjs";
import { get, useAsked } from "../api.mjs";
import { Command, Events, States, TimelineLink, quoted } from "../events.mjs";
import { count, visible } from "../format.mjs";
import { go, param, place } from "../place.mjs";
import { Badge, Empty, Failure, Heading, Link, Loading, Missing, Name, Table, Time, TimeHead, VirtualTable, html } from "../ui.mjs";

const REFRESH_MS = 3000;

function Owner({ row }) {
  if (row.transactional_id === null) return html`<span class="faint">–</span>`;
  return html`<${Link} to="/transaction" params=${{ id: row.transactional_id }}><${Name} text=${row.transactional_id} /><//>`;
}

function Open({ row }) {
  if (row.transaction_start_offset === null) return html`<span class="faint">–</span>`;
  return html`<${Badge} level=${row.hanging ? "error" : "warning"}>since offset ${count(row.transaction_start_offset)}${row.hanging && ", hangs?"}<//>`;
}

const PARTITION = { label: "Partition", cell: (row) => html`<${Link} to="/producers" params=${{ topic: row.topic, partition: row.partition }}><${Name} text=${`${row.topic}-${row.partition}`} /><//>` };
const ID = { key: "producer_id", label: "Producer id", sort: true, align: "right", width: "9rem", cell: (row) => html`<${Link} to="/producer" params=${{ id: row.producer_id, topic: row.topic, partition: row.partition }}>${row.producer_id}<//>` };
const COLUMNS = [
  { key: "epoch", label: "Epoch", sort: true, align: "right", width: "6rem", cell: (row) => row.epoch },
  { key: "last_sequence", label: "Last sequence", sort: true, align: "right", width: "10rem", cell: (row) => (row.last_sequence < 0 ? "–" : count(row.last_sequence)) },
  { key: "last_timestamp_ms", label: html`<${TimeHead} label="Last written" />`, sort: true, width: "17rem", cell: (row) => html`<${Time} ms=${row.last_timestamp_ms} />` },
  { key: "transaction_start_offset", label: "Open transaction", sort: true, width: "15rem", cell: (row) => html`<${Open} row=${row} />` },
  { key: "transactional_id", label: "Transactional id", cell: (row) => html`<${Owner} row=${row} />` },
];

/** Advice for open transactions that may hang: no transactional id on the page has them. */
const Hanging = ({ rows }) => {
  const some = rows.filter((row) => row.hanging).slice(0, 5);
  return some.length > 0 && html`<div class="missing">
    <p>No transactional id that can be seen here has these transactions. One that stays open so hangs, and holds back consumers with read_committed for ever. To end it:</p>
    ${some.map((row) => html`<p><${Command}>odradek txn abort --topic ${quoted(row.topic)} --partition ${row.partition} --start-offset ${row.transaction_start_offset} --execute<//></p>`)}
  </div>`;
};

function OfPartition({ topic, partition }) {
  const [turn, setTurn] = useState(0);
  const [about, setAbout] = useState(null);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setTurn((old) => old + 1), REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  const load = async (offset, limit, sort, signal) => {
    const page = await get("/producers", { topic, partition, offset, limit, sort }, signal);
    setAbout(page);
    return page;
  };
  return html`
    <${Heading} title=${`Producers of ${topic}-${partition}`}
      about=${about && about.end !== null && `last stable offset ${count(about.stable)}, end ${count(about.end)}: ${count(about.hidden)} held back from read_committed`} />
    ${about && html`<${Missing} reasons=${about.missing} /><${States} history=${about} without=${/^(?!now_stable|now_held_back)/} /><${Hanging} rows=${about.rows} />`}
    <${VirtualTable} label="Producers" columns=${[ID, ...COLUMNS]} load=${load} refresh=${turn} reset=${`${topic} ${partition}`}
      sort="-last_timestamp_ms" rowKey=${(row) => row.producer_id}
      open=${(row) => go("/producer", { id: row.producer_id, topic, partition })}
      empty=${html`<${Empty} title="No producer with a producer id has written here">Producers without idempotence have none.<//>`} />
  `;
}

function OfId({ id }) {
  const { data, error, reload } = useAsked("/producer", { id, topic: param("topic") || null, partition: param("partition") || null }, { everyMs: REFRESH_MS });
  return html`
    <${Heading} title=${`Producer ${id}`} about=${data?.transactional_id && html`of transactional id <${Owner} row=${data} /> ${visible(data.state)}`}>
      <${TimelineLink} type="producer" name=${id} />
    <//>
    <${Failure} error=${error} retry=${reload} />
    ${data
      ? html`<${Missing} reasons=${data.missing} /><${Hanging} rows=${data.rows} />
          ${data.rows.length > 0 && html`<${Table} label="Partitions" heads=${[PARTITION, ...COLUMNS.slice(0, 4)]}>
            ${data.rows.map((row) => html`<tr>${[PARTITION, ...COLUMNS.slice(0, 4)].map(({ cell, align }) => html`<td class=${align ?? ""}>${cell(row)}</td>`)}</tr>`)}
          <//>`}
          <section><h2>Now</h2><${States} history=${data.history} /></section>
          <section><h2>Recent events</h2><${Events} history=${data.history} /></section>`
      : !error && html`<${Loading} />`}
  `;
}

function Choose() {
  const open = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    go("/producers", { topic: form.get("topic"), partition: form.get("partition") });
  };
  return html`<${Heading} title="Producers" />
    <form class="actions" onSubmit=${open}>
      <label class="choice">Topic <input name="topic" required maxlength="249" /></label>
      <label class="choice">Partition <input name="partition" type="number" min="0" value="0" required /></label>
      <button class="primary">Show its producers</button>
    </form>`;
}

export default function Producers() {
  if (place.value.path === "/producer") return html`<${OfId} id=${param("id")} />`;
  return param("topic") ? html`<${OfPartition} topic=${param("topic")} partition=${param("partition") || "0"} />` : html`<${Choose} />`;
}
