// The settings of a broker, a topic or a group, with the source of each value.
import { useState } from "../vendor/hooks.mjs";
import { useAsked } from "../api.mjs";
import { visible } from "../format.mjs";
import { change, param } from "../place.mjs";
import { Badge, ChangeDialog, Empty, Failure, Heading, Loading, Name, Search, Table, Toggle, html } from "../ui.mjs";

const SOURCES = {
  topic: "this topic",
  group: "this group",
  dynamic_broker: "this broker, dynamic",
  dynamic_default_broker: "all brokers, dynamic",
  static_broker: "the broker's file",
  default: "default",
};

const shown = (value, sensitive = false) =>
  sensitive
    ? html`<span class="faint">secret</span>`
    : value === null
      ? html`<span class="faint">not set</span>`
      : value === ""
        ? html`<span class="faint">empty</span>`
        : html`<span class="mono">${visible(value)}</span>`;

function Edit({ kind, name, row, close }) {
  const [value, setValue] = useState(row.value ?? "");
  const [wanted, setWanted] = useState(undefined);
  if (wanted !== undefined) {
    return html`<${ChangeDialog}
      title=${`Change ${row.name}`}
      path="/change/settings"
      body=${{ type: kind, name, changes: { [row.name]: wanted } }}
      action="Change it"
      close=${close}
      draw=${(plan) => plan.rows.map(
        (each) => html`<p>
          <span class="mono">${each.name}</span>: ${shown(each.from, row.sensitive)} (${SOURCES[each.source] ?? each.source})
          becomes ${each.to === null ? "what it is without a value here" : shown(each.to)}.
        </p>`,
      )}
    />`;
  }
  return html`<form
    class="actions"
    onSubmit=${(event) => {
      event.preventDefault();
      setWanted(value);
    }}
  >
    <input class="mono" aria-label=${`New value of ${row.name}`} value=${value} onInput=${({ target }) => setValue(target.value)} />
    <button class="primary">Plan</button>
    <button type="button" onClick=${() => setWanted(null)}>Back to default</button>
    <button type="button" onClick=${() => close(null)}>Cancel</button>
  </form>`;
}

function Setting({ row, kind, name, write, reload }) {
  const [editing, setEditing] = useState(false);
  return html`<tr>
    <td><span class="mono" title=${row.documentation ?? ""}>${row.name}</span></td>
    <td class="value">
      ${editing
        ? html`<${Edit}
            kind=${kind}
            name=${name}
            row=${row}
            close=${(result) => {
              setEditing(false);
              if (result) reload();
            }}
          />`
        : shown(row.value, row.sensitive)}
    </td>
    <td>${row.is_default ? html`<span class="faint">default</span>` : html`<${Badge}>${SOURCES[row.source] ?? row.source}<//>`}</td>
    ${write &&
    html`<td>${!editing && !row.read_only && html`<button onClick=${() => setEditing(true)}>Change</button>`}</td>`}
  </tr>`;
}

/** The settings of one resource, also for other pages. `kind`: "topic", "group" or "broker". */
export function Settings({ kind, name, write, filter = "", changed = false }) {
  const { data, error, loading, reload } = useAsked("/settings", { type: kind, name });
  const rows = (data?.rows ?? []).filter(
    (row) => row.name.includes(filter.toLowerCase()) && !(changed && row.is_default),
  );
  return html`
    <${Failure} error=${error} retry=${reload} />
    ${loading && !data && html`<${Loading} />`}
    ${data && !rows.length && html`<${Empty} title=${changed && !filter ? "Every setting has its default" : "No setting matches"} />`}
    ${rows.length > 0 &&
    html`<${Table} label="Settings" heads=${["Setting", "Value", "From", ...(write ? ["Change"] : [])]}>
      ${rows.map((row) => html`<${Setting} key=${row.name} row=${row} kind=${kind} name=${name} write=${write} reload=${reload} />`)}
    <//>`}
  `;
}

export default function SettingsPage({ about }) {
  const kind = param("type") || "broker";
  const { data } = useAsked("/nodes");
  const name = param("name") || (kind === "broker" && !param("all") ? String(data?.nodes[0] ?? "") : "");
  const ready = kind !== "broker" || data;
  return html`
    <${Heading} title="Settings" about=${kind === "broker" ? (name ? `of broker ${name}` : "for all brokers") : html`of ${kind} <${Name} text=${name} />`}>
      ${kind === "broker" &&
      html`<label class="choice">
        <span>Broker</span>
        <select
          value=${param("all") ? "all" : name}
          onChange=${({ target }) => change(target.value === "all" ? { all: "1", name: "" } : { all: "", name: target.value })}
        >
          ${(data?.nodes ?? []).map((node) => html`<option value=${String(node)}>${node}</option>`)}
          <option value="all">default of all</option>
        </select>
      </label>`}
      <${Toggle} name="changed" label="Only what is not default" />
      <${Search} label="Search settings" />
    <//>
    ${ready &&
    html`<${Settings} kind=${kind} name=${name} write=${about.write} filter=${param("filter")} changed=${param("changed") === "1"} />`}
  `;
}
