// The list of topics: pages from the server, sorted and searched there.
import { useEffect, useState } from "../vendor/hooks.mjs";
import { get } from "../api.mjs";
import { bytes, count } from "../format.mjs";
import { go, param } from "../place.mjs";
import { Badge, Empty, Heading, Link, Missing, Name, NoneYet, Search, Toggle, VirtualTable, html } from "../ui.mjs";

const REFRESH_MS = 5000;

function State({ row }) {
  if (row.leaderless) return html`<${Badge} level="error">${row.leaderless} without leader<//>`;
  if (row.under_replicated) return html`<${Badge} level="warning">${row.under_replicated} under-replicated<//>`;
  return html`<${Badge} level="good">ok<//>`;
}

const COLUMNS = [
  { key: "name", label: "Name", sort: true, narrow: "12rem", cell: (row) => html`<${Link} to="/topic" params=${{ name: row.name }}><${Name} text=${row.name} /><//>` },
  { key: "partitions", label: "Partitions", sort: true, align: "right", width: "8rem", cell: (row) => count(row.partitions) },
  { key: "replication_factor", label: "Replicas", sort: true, align: "right", width: "8rem", cell: (row) => row.replication_factor },
  { key: "offsets", label: "Offsets", align: "right", width: "9rem", narrow: "7rem", cell: (row) => html`<${Link} to="/topic/records" params=${{ name: row.name }}>${count(row.offsets)}<//>` },
  { key: "size_bytes", label: "Size", sort: true, align: "right", width: "8rem", cell: (row) => bytes(row.size_bytes) },
  { key: "problems", label: "State", sort: true, width: "11rem", narrow: "8rem", cell: (row) => html`<${State} row=${row} />` },
];

export default function Topics({ about }) {
  const filter = param("filter");
  const internal = param("internal");
  const [turn, setTurn] = useState(0);
  const [missing, setMissing] = useState([]);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setTurn((old) => old + 1), REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  const load = async (offset, limit, sort, signal) => {
    const page = await get("/topics", { offset, limit, sort, filter, internal }, signal);
    setMissing(page.missing);
    return page;
  };
  return html`
    <${Heading} title="Topics">
      <${Search} label="Search topics" />
      <${Toggle} name="internal" label="Internal topics" />
      ${about?.write && html`<${Link} class="button" to="/write" params=${{ do: "create" }}>Create<//>`}
    <//>
    <${VirtualTable}
      label="Topics"
      columns=${COLUMNS}
      load=${load}
      reset=${`${filter}\n${internal}`}
      refresh=${turn}
      sort="name"
      rowKey=${(row) => row.name}
      open=${(row) => go("/topic", { name: row.name })}
      empty=${filter
        ? html`<${Empty} title="No topic has this in its name" />`
        : html`<${NoneYet} title="No topics to show">
            ${about.write ? html`<${Link} to="/write" params=${{ do: "create" }}>Create one<//>` : html`Make one: <code>odradek topic create NAME</code>`}
          <//>`}
    />
    <${Missing} reasons=${missing} />
  `;
}
