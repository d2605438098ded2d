// Metrics that clients push: the list of clients, or the metrics of the client `id` in the address.
import { useEffect, useState } from "../vendor/hooks.mjs";
import { get } from "../api.mjs";
import { bytes, count, duration, visible } from "../format.mjs";
import { go, param } from "../place.mjs";
import { Badge, Empty, Figure, Heading, Link, Name, Search, VirtualTable, html } from "../ui.mjs";

const REFRESH_MS = 5000;

function useTurn() {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setTurn((old) => old + 1), REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  return turn;
}

const ago = (ms) => (ms === null ? "never" : `${duration(ms)} ago`);
const software = (client) => `${client.software_name} ${client.software_version}`.trim() || "–";

const CLIENTS = [
  {
    key: "client_id",
    label: "Client id",
    sort: true,
    narrow: "12rem",
    cell: (row) =>
      html`<${Link} to="/client-metrics" params=${{ id: row.client_instance_id }}><${Name} text=${row.client_id || row.client_instance_id} /><//>`,
  },
  { key: "software_name", label: "Software", sort: true, width: "15rem", cell: (row) => html`<${Name} text=${software(row)} />` },
  { key: "host", label: "From", width: "8rem", cell: (row) => html`<${Name} text=${row.host} />` },
  { key: "user", label: "User", width: "8rem", cell: (row) => html`<${Name} text=${row.user} />` },
  { key: "series", label: "Series", sort: true, align: "right", width: "5.5rem", cell: (row) => count(row.series) },
  { key: "pushes", label: "Pushes", sort: true, align: "right", width: "5.5rem", cell: (row) => count(row.pushes) },
  { key: "last_push_age_ms", label: "Last push", sort: true, align: "right", width: "8rem", narrow: "7rem", cell: (row) => ago(row.last_push_age_ms) },
];

/** The state of a client. Without a subscription nobody asks it to push. */
const state = (subscribed) => ({
  key: "gone",
  label: "State",
  width: "9rem",
  narrow: "8rem",
  cell: (row) =>
    row.gone ? html`<${Badge}>ended<//>` : subscribed ? html`<${Badge} level="good">pushes<//>` : html`<${Badge}>no subscription<//>`,
});

const labels = ({ labels: given }) =>
  Object.entries(given)
    .map(([name, value]) => `${name}=${value}`)
    .join(", ");

const METRICS = [
  { key: "name", label: "Metric", sort: true, width: "24rem", narrow: "18rem", cell: (row) => html`<${Name} text=${row.name} />` },
  { key: "labels", label: "Labels", cell: (row) => html`<${Name} text=${labels(row)} />` },
  { key: "kind", label: "Kind", width: "7rem", cell: (row) => row.kind },
  { key: "value", label: "Value", sort: true, align: "right", width: "11rem", narrow: "9rem", cell: (row) => visible(row.value) },
];

function Clients() {
  const filter = param("filter");
  const turn = useTurn();
  const [subscriptions, setSubscriptions] = useState(undefined);
  const load = async (offset, limit, sort, signal) => {
    const page = await get("/pushing-clients", { offset, limit, sort, filter }, signal);
    setSubscriptions(page.subscriptions);
    return page;
  };
  const about =
    subscriptions === undefined
      ? null
      : subscriptions === null
        ? "You may not see which metrics clients are asked for."
        : subscriptions.length
          ? `Asked for by ${subscriptions.join(", ")}`
          : "No subscription asks clients for metrics";
  return html`
    <${Heading} title="Client metrics" about=${about && visible(about)}><${Search} label="Search client, host or user" /><//>
    <${VirtualTable}
      label="Clients that push metrics"
      columns=${[...CLIENTS, state(subscriptions?.length !== 0)]}
      load=${load}
      reset=${filter}
      refresh=${turn}
      sort="client_id"
      rowKey=${(row) => row.client_instance_id}
      open=${(row) => go("/client-metrics", { id: row.client_instance_id })}
      empty=${html`<${Empty} title=${filter ? "No client matches" : "No client pushes metrics"}>
        Clients of Kafka 3.7 and later push what a subscription asks for:
        <code>odradek client-metrics alter NAME --metrics org.apache.kafka. --interval 10000</code>
      <//>`}
    />
  `;
}

function Client({ id }) {
  const filter = param("filter");
  const turn = useTurn();
  const [client, setClient] = useState(null);
  const load = async (offset, limit, sort, signal) => {
    const page = await get("/pushing-client", { id, offset, limit, sort, filter }, signal);
    setClient(page.client);
    return page;
  };
  return html`
    <${Heading} title=${client?.client_id || id} about=${client && visible(`${software(client)}, instance ${id}`)}>
      <${Search} label="Search metrics" />
      ${client?.client_id && html`<${Link} to="/timeline" params=${{ s: `client:${client.client_id}` }}>Timeline<//>`}
      <${Link} to="/client-metrics">All clients<//>
    <//>
    ${client &&
    html`<section class="figures" aria-label="Figures">
      <${Figure} label="Series" value=${count(client.series)} note=${client.left_out ? `${count(client.left_out)} left out` : null} />
      <${Figure} label="Pushes" value=${count(client.pushes)} note=${`every ${duration(client.push_interval_ms)}`} />
      <${Figure} label="Last push" value=${ago(client.last_push_age_ms)} note=${bytes(client.last_push_bytes)} />
      <${Figure} label="From" value=${visible(client.host)} note=${visible(client.user)} />
    </section>`}
    <${VirtualTable}
      label="Metrics of the client"
      columns=${METRICS}
      load=${load}
      reset=${`${id}\n${filter}`}
      refresh=${turn}
      sort="name"
      rowKey=${(row) => `${row.name} ${labels(row)}`}
      empty=${html`<${Empty} title=${filter ? "No metric matches" : "It has pushed nothing that is kept"} />`}
    />
  `;
}

export default function ClientMetrics() {
  const id = param("id");
  return id ? html`<${Client} key=${id} id=${id} />` : html`<${Clients} />`;
}
