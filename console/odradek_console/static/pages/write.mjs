// Changes, each with its plan first: a record produced, records deleted, a group's offsets moved.
import { useState } from "../vendor/hooks.mjs";
import { bytes, count, moment, visible, zoneName } from "../format.mjs";
import { change, param } from "../place.mjs";
import { ChangeDialog, Empty, Heading, Table, html } from "../ui.mjs";

const right = (label) => ({ label, align: "right" });

const textOrNull = (text) => (text === "" ? null : text);

function record(form) {
  const headers = form.headers
    .split("\n")
    .filter((line) => line.trim())
    .map((line) => {
      const at = line.indexOf(":");
      return at < 0 ? [line.trim(), ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
    });
  return {
    topic: form.topic,
    partition: form.partition === "" ? null : Number(form.partition),
    key: textOrNull(form.key),
    value: form.tombstone ? null : form.value,
    headers,
    encoding: form.encoding,
  };
}

const size = (value) => (value === null ? "none" : bytes(value));

function Produce({ order }) {
  const submit = (form) =>
    order({
      title: "Write a record",
      path: "/change/record",
      body: record(form),
      action: "Write it",
      draw: (plan) => html`<p>
        A record for topic <span class="mono">${visible(plan.topic)}</span>,
        ${plan.partition === null ? " a partition chosen by the key" : ` partition ${plan.partition}`}: key ${size(plan.key_bytes)},
        value ${plan.value_bytes === null ? "none (a tombstone)" : size(plan.value_bytes)}, ${plan.headers} headers.
      </p>`,
    });
  return html`<${Form} submit=${submit}>
    <label>Topic <input name="topic" class="mono" required value=${param("topic")} /></label>
    <label>Partition <input name="partition" inputmode="numeric" pattern="[0-9]*" placeholder="by the key" /></label>
    <label>Key <input name="key" class="mono" placeholder="none" /></label>
    <label>Value <textarea name="value" class="mono" rows="6"></textarea></label>
    <label class="toggle"><input type="checkbox" name="tombstone" /> No value (a tombstone)</label>
    <label>Headers <textarea name="headers" class="mono" rows="2" placeholder="name: value, one in each line"></textarea></label>
    <label>
      Key and value are
      <select name="encoding"><option value="text">text</option><option value="base64">base64</option></select>
    </label>
  <//>`;
}

const place = (form) => ({
  to: form.to,
  ...(form.to === "time" ? { value: moment(form.value) } : form.to === "offset" || form.to === "shift" ? { value: Number(form.value) } : {}),
});

function Place({ choices, label }) {
  const [to, setTo] = useState(choices[0][0]);
  return html`
    <label>
      ${label}
      <select name="to" value=${to} onChange=${({ target }) => setTo(target.value)}>
        ${choices.map(([name, text]) => html`<option value=${name}>${text}</option>`)}
      </select>
    </label>
    ${to === "time" && html`<label>Time (${zoneName()}) <input name="value" required placeholder="2026-11-26 21:00" /></label>`}
    ${(to === "offset" || to === "shift") &&
    html`<label>${to === "offset" ? "Offset" : "Records (negative: back)"} <input name="value" required inputmode="numeric" pattern="-?[0-9]+" /></label>`}
  `;
}

function Delete({ order }) {
  const submit = (form) =>
    order({
      title: "Delete records",
      path: "/change/deletion",
      body: { topic: form.topic, ...place(form), partition: form.partition === "" ? null : Number(form.partition) },
      action: "Delete them",
      danger: true,
      draw: (plan) => html`
        <p>Everything before these offsets goes, for good:</p>
        <${Table} label="Plan" heads=${["Partition", "Starts at", "Will start at", "Offsets"].map(right)}>
          ${plan.rows.map(
            (row) => html`<tr>
              <td class="right">${row.partition}</td>
              <td class="right">${count(row.start)}</td>
              <td class="right">${count(row.new_start)}</td>
              <td class="right">${count(row.records)}</td>
            </tr>`,
          )}
        <//>
      `,
    });
  return html`<${Form} submit=${submit}>
    <label>Topic <input name="topic" class="mono" required value=${param("topic")} /></label>
    <label>Partition <input name="partition" inputmode="numeric" pattern="[0-9]*" placeholder="all" value=${param("partition")} /></label>
    <${Place}
      label="Delete what is before"
      choices=${[["time", "a time"], ["offset", "an offset"], ["end", "the end (everything)"]]}
    />
  <//>`;
}

function Reset({ order }) {
  const submit = (form) =>
    order({
      title: "Move offsets",
      path: "/change/offsets",
      body: { group: form.group, topic: textOrNull(form.topic), ...place(form) },
      action: "Move them",
      danger: true,
      draw: (plan) => html`
        <p>The offsets of group <span class="mono">${visible(plan.group)}</span> become:</p>
        ${plan.notes.map((note) => html`<p class="faint">${visible(note)}</p>`)}
        <${Table} label="Plan" heads=${["Topic", right("Partition"), right("From"), right("To")]}>
          ${plan.rows.map(
            (row) => html`<tr>
              <td class="mono">${visible(row.topic)}</td>
              <td class="right">${row.partition}</td>
              <td class="right">${count(row.from)}</td>
              <td class="right">${count(row.to)}</td>
            </tr>`,
          )}
        <//>
      `,
    });
  return html`<${Form} submit=${submit}>
    <label>Group <input name="group" class="mono" required value=${param("group")} /></label>
    <label>Topic <input name="topic" class="mono" placeholder="all with offsets" value=${param("topic")} /></label>
    <${Place}
      label="Move to"
      choices=${[["time", "a time"], ["start", "the start"], ["end", "the end"], ["offset", "an offset"], ["shift", "records on or back"]]}
    />
  <//>`;
}

const Form = ({ submit, children }) => html`<form
  class="fields"
  onSubmit=${(event) => {
    event.preventDefault();
    submit(Object.fromEntries(new FormData(event.target)));
  }}
>
  ${children}
  <button class="primary">Show the plan</button>
</form>`;

const KINDS = {
  produce: ["Write a record", Produce],
  delete: ["Delete records", Delete],
  reset: ["Move a group's offsets", Reset],
};

export default function Write({ about }) {
  const [wanted, setWanted] = useState(null);
  const [told, setTold] = useState("");
  if (!about.write) {
    return html`
      <${Heading} title="Change" />
      <${Empty} title="This console only shows">
        Started with --console-write (odradek serve) or --write (odradek console) it can change things.
      <//>
    `;
  }
  const kind = param("do") in KINDS ? param("do") : "produce";
  const [, Chosen] = KINDS[kind];
  return html`
    <${Heading} title="Change">
      <label class="choice">
        <span>What</span>
        <select value=${kind} onChange=${({ target }) => change({ do: target.value })}>
          ${Object.entries(KINDS).map(([name, [text]]) => html`<option value=${name}>${text}</option>`)}
        </select>
      </label>
    <//>
    <p role="status">${told && html`<span class="badge good">Done</span> ${told}`}</p>
    <${Chosen} key=${kind} order=${(order) => (setTold(""), setWanted(order))} />
    ${wanted &&
    html`<${ChangeDialog}
      ...${wanted}
      close=${(result) => {
        setWanted(null);
        if (result) setTold(result.text);
      }}
    />`}
  `;
}
