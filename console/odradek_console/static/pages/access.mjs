// Rights: ACLs, users with passwords in the cluster, and quotas.
import { useState } from "../vendor/hooks.mjs";
import { get, useAsked } from "../api.mjs";
import { bytes, count, visible } from "../format.mjs";
import { param } from "../place.mjs";
import { Badge, Empty, Failure, Heading, Link, Loading, Name, Search, Table, VirtualTable, html } from "../ui.mjs";

/** A name of an enumeration, with spaces. */
export const words = (name) => name.replaceAll("_", " ");

const COLUMNS = [
  { key: "principal", label: "Principal", sort: true, cell: (row) => html`<${Name} text=${row.principal} />` },
  {
    key: "permission",
    label: "May",
    sort: true,
    width: "7rem",
    cell: (row) => html`<${Badge} level=${row.permission === "deny" ? "error" : "good"}>${row.permission}<//>`,
  },
  { key: "operation", label: "Operation", sort: true, width: "11rem", cell: (row) => words(row.operation) },
  { key: "type", label: "On", sort: true, width: "10rem", cell: (row) => words(row.type) },
  {
    key: "name",
    label: "Name",
    sort: true,
    cell: (row) => html`<${Name} text=${row.pattern === "prefixed" ? `${row.name}…` : row.name} />`,
  },
  { key: "host", label: "From", sort: true, width: "9rem", cell: (row) => html`<${Name} text=${row.host} />` },
];

const Change = ({ what, of = {}, children, ...rest }) => html`<${Link} to="/write" params=${{ do: what, ...of }} ...${rest}>${children}<//>`;

const DELETE = {
  key: "delete",
  label: "Change",
  width: "5.5rem",
  cell: (row) => html`<${Change} what="acl-deletion" of=${row}>Delete<//>`,
};

/** A list that is asked for once, with its title, errors and empty state. */
function Part({ title, path, heads, empty, draw }) {
  const { data, error, reload } = useAsked(path);
  return html`<section>
    <h2>${title}</h2>
    <${Failure} error=${error} retry=${reload} />
    ${!data && !error && html`<${Loading} />`}
    ${data && !data.rows.length && html`<p class="faint">${empty}</p>`}
    ${data?.rows.length > 0 && html`<${Table} label=${title} heads=${heads}>${data.rows.map(draw)}<//>`}
  </section>`;
}

const QUOTAS = {
  producer_byte_rate: (value) => `produce ${bytes(value)}/s`,
  consumer_byte_rate: (value) => `fetch ${bytes(value)}/s`,
  request_percentage: (value) => `requests ${value} % of a core`,
  controller_mutation_rate: (value) => `${value} changes/s`,
  connection_creation_rate: (value) => `${value} connections/s`,
};

const part = (value) => (value === null ? "" : value === "" ? html`<span class="faint">all others</span>` : visible(value));

export default function Access({ about }) {
  const filter = param("filter");
  const [enforced, setEnforced] = useState(true);
  const load = async (offset, limit, sort, signal) => {
    const page = await get("/acls", { offset, limit, sort, filter }, signal);
    setEnforced(page.enforced);
    return page;
  };
  return html`
    <${Heading} title="Access">
      ${about.write && html`<${Change} class="button" what="acl-creation">Add an ACL<//><${Change} class="button" what="password">Add a user<//>`}
      <${Search} label="Search ACLs" />
    <//>
    <h2>ACLs</h2>
    <${VirtualTable}
      label="ACLs"
      columns=${about.write ? [...COLUMNS, DELETE] : COLUMNS}
      load=${load}
      reset=${filter}
      sort="principal"
      empty=${enforced
        ? html`<${Empty} title=${filter ? "No ACL matches" : "There are no ACLs"} />`
        : html`<${Empty} title="This broker checks no ACLs">Everybody who can connect may do everything.<//>`}
    />
    <${Part}
      title="Users"
      path="/users"
      heads=${["User", ...(about.write ? ["Change"] : []), "Passwords"]}
      empty="No user has a SCRAM password in the cluster."
      draw=${(row) => html`<tr>
        <td><${Name} text=${row.name} /></td>
        ${about.write &&
        html`<td>
          <${Change} what="password" of=${{ user: row.name, mechanism: row.credentials[0].mechanism }}>Password<//>
          ${", "}<${Change} what="user-deletion" of=${{ user: row.name }}>Delete<//>
        </td>`}
        <td>${row.credentials.map((each) => html`<div>${each.mechanism}, ${count(each.iterations)} iterations</div>`)}</td>
      </tr>`}
    />
    <${Part}
      title="Quotas"
      path="/quotas"
      heads=${["User", "Client id", "Address", "Limits"]}
      empty="There are no quotas."
      draw=${(row) => html`<tr>
        <td>${part(row.user)}</td>
        <td>${part(row.client_id)}</td>
        <td>${part(row.ip)}</td>
        <td>
          ${Object.entries(row.quotas)
            .map(([name, value]) => QUOTAS[name]?.(value) ?? `${name} ${value}`)
            .join(", ")}
        </td>
      </tr>`}
    />
  `;
}
