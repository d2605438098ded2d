// The cluster in figures, and what is wrong, in sentences that lead to where it shows.
import { useLive } from "../api.mjs";
import { bytes, count } from "../format.mjs";
import { Failure, Figure, Heading, Loading, Missing, Name, Sentences, Table, html } from "../ui.mjs";

const right = (label) => ({ label, align: "right" });

const Disks = ({ rows }) => html`<section>
  <h2>Disks</h2>
  <${Table} label="Disks" heads=${["Node", "Directory", ...["Partitions", "Size of logs", "Free", "Of"].map(right)]}>
    ${rows.map(
      (disk) => html`<tr>
        <td>${disk.node}</td>
        <td><${Name} text=${disk.path} /></td>
        <td class="right">${count(disk.partitions)}</td>
        <td class="right">${bytes(disk.size_bytes)}</td>
        <td class="right">${bytes(disk.usable_bytes)}</td>
        <td class="right">${bytes(disk.total_bytes)}</td>
      </tr>`,
    )}
  <//>
</section>`;

export default function Overview() {
  const { data, error, at } = useLive("overview");
  return html`
    <${Heading} title="Overview" about=${data?.cluster && `Cluster ${data.cluster.cluster_id}`} />
    <${Failure} error=${error} at=${at} />
    ${data
      ? html`
          <section aria-label="What is wrong now">
            ${data.problems.length
              ? html`<${Sentences} rows=${data.problems} />`
              : html`<p class="all-well"><span class="badge good">Good</span> Nothing is wrong that the brokers know of.</p>`}
          </section>
          <section class="figures" aria-label="Figures">
            <${Figure} label="Nodes" value=${data.cluster ? count(data.cluster.nodes.length) : "–"} />
            <${Figure}
              label="Topics"
              value=${count(data.topics.topics)}
              to="/topics"
              note=${`and ${count(data.topics.internal_topics)} internal`}
            />
            <${Figure} label="Partitions" value=${count(data.topics.partitions)} />
            <${Figure}
              label="Groups"
              value=${data.groups ? count(Object.values(data.groups).reduce((sum, each) => sum + each, 0)) : "–"}
              note=${data.groups &&
              Object.entries(data.groups)
                .map(([state, number]) => `${count(number)} ${state}`)
                .join(", ")}
            />
            <${Figure} label="Open transactions" value=${count(data.open_transactions)} />
          </section>
          ${data.disks.length > 0 && html`<${Disks} rows=${data.disks} />`}
          <${Missing} reasons=${data.missing} />
        `
      : !error && html`<${Loading} />`}
  `;
}
