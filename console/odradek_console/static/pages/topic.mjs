// A topic: its partitions, its settings with their sources, the groups that read it.
import { useEffect, useState } from "../vendor/hooks.mjs";
import { get, useAsked } from "../api.mjs";
import { bytes, count, visible } from "../format.mjs";
import { param } from "../place.mjs";
import { TopicHead } from "../record_parts.mjs";
import { Badge, Empty, Failure, Figure, Link, Loading, Missing, Name, Search, Table, VirtualTable, html } from "../ui.mjs";

const REFRESH_MS = 3000;

const nodes = (part) =>
  part.replicas.map((node, index) => {
    const out = !part.in_sync.includes(node);
    return html`${index > 0 && ", "}${out ? html`<span class="badge warning" title="not in sync">${node}</span>` : node}`;
  });

const right = (key, label, width, narrow) => ({
  key,
  label,
  width,
  narrow,
  sort: true,
  align: "right",
  cell: (row) => (key === "size_bytes" ? bytes(row[key]) : count(row[key])),
});

const COLUMNS = [
  right("partition", "Partition", "7rem", "6rem"),
  {
    key: "leader",
    label: "Leader",
    sort: true,
    width: "8rem",
    cell: (row) => (row.leader === null ? html`<${Badge} level="error">none<//>` : html`${row.leader}${" "}<span class="faint">(epoch ${row.leader_epoch})</span>`),
  },
  { key: "replicas", label: "Replicas", width: "9rem", cell: nodes },
  right("start", "Start", "9rem"),
  right("end", "End", "9rem"),
  right("offsets", "Offsets", "9rem", "7rem"),
  {
    key: "held",
    label: "Held back",
    sort: true,
    align: "right",
    width: "11rem",
    narrow: "10rem",
    cell: (row) =>
      row.held > 0
        ? html`<${Link}
            to="/transactions"
            title=${`An open transaction holds readers of committed records at offset ${row.stable}`}
            ><${Badge} level="warning">${count(row.held)} from ${count(row.stable)}<//><//
          >`
        : html`<span class="faint">–</span>`,
  },
  right("size_bytes", "Size", "8rem"),
  {
    key: "records",
    label: "More",
    width: "11rem",
    cell: (row) => html`
      <${Link} to="/topic/records" params=${{ name: param("name"), partitions: row.partition }}>records<//>,${" "}
      <${Link} to="/producers" params=${{ topic: param("name"), partition: row.partition }}>producers<//>
    `,
  },
];

function Partitions({ name }) {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setTurn((old) => old + 1), REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  const { data, error } = useAsked("/topic", { name }, { everyMs: REFRESH_MS });
  if (error && !data) return html`<${Failure} error=${error} />`;
  return html`
    <${Failure} error=${error} />
    ${data
      ? html`<section class="figures" aria-label="Figures">
          <${Figure} label="Partitions" value=${count(data.partitions)} note=${data.leaderless ? `${data.leaderless} without leader` : null} />
          <${Figure} label="Replicas" value=${data.replication_factor} note=${data.under_replicated ? `${data.under_replicated} not in sync` : null} />
          <${Figure} label="Offsets" value=${count(data.offsets)} to="/topic/records" params=${{ name }} />
          <${Figure} label="Size" value=${bytes(data.size_bytes)} />
          <${Figure}
            label="Held back by transactions"
            value=${count(data.held)}
            note=${data.held ? `in ${count(data.held_partitions)} ${data.held_partitions === 1 ? "partition" : "partitions"}` : null}
          />
        </section>`
      : html`<${Loading} />`}
    <${VirtualTable}
      label="Partitions"
      columns=${COLUMNS}
      load=${(offset, limit, sort, signal) => get("/topic/partitions", { name, offset, limit, sort }, signal)}
      reset=${name}
      refresh=${turn}
      sort="partition"
      rowKey=${(row) => row.partition}
    />
    <${Missing} reasons=${data?.missing} />
  `;
}

function Settings({ name }) {
  const { data, error } = useAsked("/topic/settings", { name });
  const wanted = param("filter").toLowerCase();
  if (!data) return error ? html`<${Failure} error=${error} />` : html`<${Loading} />`;
  const rows = data.rows.filter((row) => row.name.includes(wanted));
  return html`
    <div class="actions controls"><${Search} label="Search settings" /></div>
    <${Table} label="Settings" heads=${["Setting", "Value", "Source", "About"]}>
      ${rows.map(
        (row) => html`<tr class=${row.is_default ? "" : "changed"}>
          <td><code>${row.name}</code></td>
          <td class="setting-value">
            ${row.is_sensitive ? html`<span class="faint">secret</span>` : html`<code>${visible(row.value ?? "")}</code>`}
          </td>
          <td>${row.is_default ? html`<span class="faint">default</span>` : html`<${Badge} level="good">${row.source}<//>`}</td>
          <td class="about">${row.documentation}</td>
        </tr>`,
      )}
    <//>
    ${!rows.length && html`<${Empty} title="No setting has this in its name" />`}
  `;
}

function Groups({ name }) {
  const { data, error } = useAsked("/topic/groups", { name }, { everyMs: 10000 });
  if (!data) return error ? html`<${Failure} error=${error} />` : html`<${Loading} />`;
  return html`
    <${Failure} error=${error} />
    ${data.rows.length
      ? html`<${Table}
          label="Groups"
          heads=${["Group", "State", { label: "Partitions", align: "right" }, { label: "Lag", align: "right" }]}
        >
          ${data.rows.map(
            (row) => html`<tr>
              <td><${Link} to="/group" params=${{ name: row.group }}><${Name} text=${row.group} /><//></td>
              <td>${row.state}</td>
              <td class="right">${count(row.partitions)}</td>
              <td class="right">${count(row.lag)}</td>
            </tr>`,
          )}
        <//>`
      : html`<${Empty} title="No group has committed an offset in this topic" />`}
    ${data.looked_at < data.groups &&
    html`<p class="faint">${count(data.looked_at)} of ${count(data.groups)} groups were looked at.</p>`}
    <${Missing} reasons=${data.missing} />
  `;
}

const PARTS = { settings: Settings, groups: Groups };

export default function Topic({ about }) {
  const name = param("name");
  const tab = param("tab");
  const Part = PARTS[tab] ?? Partitions;
  return html`
    <${TopicHead} name=${name} tab=${tab in PARTS ? tab : ""}>
      ${about?.write && html`<${Link} class="button" to="/write" params=${{ do: "delete-topic", topic: name }}>Delete<//>`}
    <//>
    <${Part} name=${name} />
  `;
}
