// The open connections of a broker: user, address, client and last request of each.
import { useEffect, useState } from "../vendor/hooks.mjs";
import { get } from "../api.mjs";
import { count } from "../format.mjs";
import { param } from "../place.mjs";
import { Empty, Heading, Link, Name, Search, Time, TimeHead, VirtualTable, html } from "../ui.mjs";

const REFRESH_MS = 3000;

const client = (row) =>
  row.client_id
    ? html`<${Link} to="/timeline" params=${{ s: `client:${row.client_id}` }}><${Name} text=${row.client_id} /><//>`
    : "–";

const columns = () => [
  { key: "client_id", label: "Client id", narrow: "12rem", cell: client },
  { key: "user", label: "User", width: "10rem", cell: (row) => html`<${Name} text=${row.user} />` },
  { key: "host", label: "From", width: "10rem", narrow: "7.5rem", cell: (row) => html`<${Name} text=${row.host} />` },
  { key: "listener", label: "Listener", width: "9rem", cell: (row) => html`<${Name} text=${row.listener} />` },
  { key: "software", label: "Software", width: "11rem", cell: (row) => html`<${Name} text=${row.software || "–"} />` },
  { key: "opened_ms", label: html`<${TimeHead} label="Open since" />`, width: "15rem", cell: (row) => html`<${Time} ms=${row.opened_ms} />` },
  { key: "requests", label: "Requests", align: "right", width: "8rem", cell: (row) => count(row.requests) },
  { key: "api", label: "Last", width: "12rem", narrow: "8rem", cell: (row) => row.api },
];

export default function Connections() {
  const filter = param("filter");
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setTurn((old) => old + 1), REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  return html`
    <${Heading} title="Connections"><${Search} label="Search client, host or user" /><//>
    <${VirtualTable}
      label="Connections"
      columns=${columns()}
      load=${(offset, limit, _, signal) => get("/connections", { offset, limit, filter }, signal)}
      reset=${filter}
      refresh=${turn}
      sort=""
      rowKey=${(row) => row.id}
      empty=${html`<${Empty} title="No connection matches" />`}
    />
  `;
}
