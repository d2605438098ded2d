// Changes, each with its plan first: records written and deleted, a group's offsets moved, topics
// created and deleted, transactions aborted, users and ACLs added and deleted.
import { useState } from "../vendor/hooks.mjs";
import { bytes, count, moment, visible, zoneName } from "../format.mjs";
import { change, param } from "../place.mjs";
import { ChangeDialog, Empty, Heading, Table, Time, html } from "../ui.mjs";
import { words } from "./access.mjs";

const right = (label) => ({ label, align: "right" });

const textOrNull = (text) => (text === "" ? null : text);

/** Lines with a name, a separator and a value. */
const pairs = (text, separator) =>
  text
    .split("\n")
    .filter((line) => line.trim())
    .map((line) => {
      const at = line.indexOf(separator);
      return at < 0 ? [line.trim(), ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
    });

const wholeOrNull = (text) => (text === "" ? null : Number(text));

function record(form) {
  return {
    topic: form.topic,
    partition: wholeOrNull(form.partition),
    key: textOrNull(form.key),
    value: form.tombstone ? null : form.value,
    headers: pairs(form.headers, ":"),
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
    <label>Topic <input name="topic" class="mono" required defaultValue=${param("topic")} /></label>
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
      body: { topic: form.topic, ...place(form), partition: wholeOrNull(form.partition) },
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
    <label>Topic <input name="topic" class="mono" required defaultValue=${param("topic")} /></label>
    <label>Partition <input name="partition" inputmode="numeric" pattern="[0-9]*" placeholder="all" defaultValue=${param("partition")} /></label>
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
    <label>Group <input name="group" class="mono" required defaultValue=${param("group")} /></label>
    <label>Topic <input name="topic" class="mono" placeholder="all with offsets" defaultValue=${param("topic")} /></label>
    <${Place}
      label="Move to"
      choices=${[["time", "a time"], ["start", "the start"], ["end", "the end"], ["offset", "an offset"], ["shift", "records on or back"]]}
    />
  <//>`;
}

function Create({ order }) {
  const submit = (form) =>
    order({
      title: "Create a topic",
      path: "/change/topic-creation",
      body: { topic: form.topic, partitions: wholeOrNull(form.partitions), replicas: wholeOrNull(form.replicas), settings: Object.fromEntries(pairs(form.settings, "=")) },
      action: "Create it",
      draw: (plan) => html`<p>
          Topic <span class="mono">${visible(plan.topic)}</span>: ${count(plan.partitions)} partitions, ${count(plan.replicas)} replicas of each.
        </p>
        <ul>${Object.entries(plan.settings).map(([name, value]) => html`<li class="mono">${visible(`${name}=${value}`)}</li>`)}</ul>`,
    });
  return html`<${Form} submit=${submit}>
    <label>Topic <input name="topic" class="mono" required maxlength="249" /></label>
    <label>Partitions <input name="partitions" inputmode="numeric" pattern="[0-9]*" placeholder="the broker's default" /></label>
    <label>Replicas <input name="replicas" inputmode="numeric" pattern="[0-9]*" placeholder="the broker's default" /></label>
    <label>Settings <textarea name="settings" class="mono" rows="3" placeholder="retention.ms=86400000, one in each line"></textarea></label>
  <//>`;
}

function DeleteTopic({ order }) {
  const submit = (form) =>
    order({
      title: "Delete a topic",
      path: "/change/topic-deletion",
      body: { topic: form.topic },
      action: "Delete it",
      danger: true,
      draw: (plan) => html`<p>
        Topic <span class="mono">${visible(plan.topic)}</span> goes for good, with ${count(plan.partitions)} partitions and
        ${" "}${count(plan.offsets)} offsets of records. Its id is <span class="mono">${plan.topic_id}</span>.
      </p>`,
    });
  return html`<${Form} submit=${submit}>
    <label>Topic <input name="topic" class="mono" required defaultValue=${param("topic")} /></label>
  <//>`;
}

function Abort({ order }) {
  const submit = (form) =>
    order({
      title: "Abort a transaction",
      path: "/change/abort",
      body: { id: form.id },
      action: "Abort it",
      danger: true,
      draw: (plan) => html`<p>
          The transaction of <span class="mono">${visible(plan.id)}</span> is open since <${Time} ms=${plan.start_ms} /> (producer id
          ${" "}${plan.producer_id}, epoch ${plan.epoch}).${plan.client_gone && " Its client is gone."} Its records in ${count(plan.partitions)} partitions are aborted, and its producer is fenced:
          ${" "}${visible(plan.first.join(", "))}${plan.partitions > plan.first.length && " …"}
        </p>
        ${!plan.has_timeout && html`<p><strong>It waits for a decision (two-phase commit): its other side may have been told to commit.</strong></p>`}`,
    });
  return html`<${Form} submit=${submit}>
    <label>Transactional id <input name="id" class="mono" required defaultValue=${param("id")} /></label>
  <//>`;
}

/** A select whose value is at first the parameter of its name; `any`: it may be left open. */
const Choice = ({ name, label, values, any, change }) => html`<label>
  ${label}
  <select name=${name} onChange=${change}>
    ${any && html`<option value="">${any}</option>`}
    ${values.map((value) => html`<option value=${value} selected=${value === param(name)}>${words(value)}</option>`)}
  </select>
</label>`;

const MECHANISMS = ["SCRAM-SHA-512", "SCRAM-SHA-256"];

const User = () => html`<label>User <input name="user" class="mono" required maxlength="256" autocomplete="off" defaultValue=${param("user")} /></label>`;

/** What stays as it is when a user's passwords change. */
const Stays = ({ plan }) => html`<p>
    ${plan.others.length > 0 && `The password for ${plan.others.join(" and ")} stays. `}The user's ACLs and open connections stay.
  </p>
  ${plan.own && html`<p><strong>You are signed in as this user.</strong></p>`}`;

function Password({ order }) {
  const submit = (form) =>
    order({
      title: "Store a password",
      path: "/change/password",
      body: { user: form.user, mechanism: form.mechanism, password: form.password, iterations: wholeOrNull(form.iterations) },
      action: "Store it",
      draw: (plan) => html`<p>
          ${plan.replaces ? "User" : "The new user"} <span class="mono">${visible(plan.user)}</span>
          ${plan.replaces ? " gets another password" : " gets a password"} for ${plan.mechanism}, with ${count(plan.iterations)} iterations
          ${plan.replaces !== null && plan.replaces !== plan.iterations && ` (${count(plan.replaces)} now)`}.
        </p>
        <${Stays} plan=${plan} />`,
    });
  const compare = ({ target }) => {
    const [first, second] = target.form.querySelectorAll("[type=password]");
    second.setCustomValidity(first.value === second.value ? "" : "The passwords differ.");
  };
  const hidden = (name, label) => html`<label>${label} <input name=${name} type="password" required maxlength="4096" autocomplete="new-password" onInput=${compare} /></label>`;
  return html`<${Form} submit=${submit}>
    <${User} />
    <${Choice} name="mechanism" label="Mechanism" values=${MECHANISMS} />
    ${hidden("password", "Password")} ${hidden("again", "The same again")}
    <label>Iterations <input name="iterations" inputmode="numeric" pattern="[0-9]*" placeholder="as now, or 4,096" /></label>
  <//>`;
}

function DeleteUser({ order }) {
  const submit = (form) =>
    order({
      title: "Delete a user",
      path: "/change/user-deletion",
      body: { user: form.user, mechanism: textOrNull(form.mechanism) },
      action: "Delete it",
      danger: true,
      draw: (plan) => html`<p>The password of <span class="mono">${visible(plan.user)}</span> for ${plan.mechanisms.join(" and ")} is deleted.</p>
        <${Stays} plan=${plan} />`,
    });
  return html`<${Form} submit=${submit}>
    <${User} />
    <${Choice} name="mechanism" label="Password for" values=${MECHANISMS} any="all mechanisms" />
  <//>`;
}

/** The types of resources, each with the operations that brokers check on it. */
const OPERATIONS = {
  topic: "read write describe create delete alter describe_configs alter_configs",
  group: "read describe delete describe_configs alter_configs",
  transactional_id: "write describe two_phase_commit",
  cluster: "describe create alter describe_configs alter_configs cluster_action idempotent_write",
  delegation_token: "describe",
  user: "create_tokens describe_tokens",
};

const Acls = ({ rows }) => html`<ul class="sentences">
  ${rows.map(
    (row) => html`<li>
      <span class="mono">${visible(row.principal)}</span> ${row.permission === "deny" ? "must not: " : "may: "}
      ${words(row.operation)} on ${words(row.type)} <span class="mono">${visible(row.name)}${row.pattern === "prefixed" && "…"}</span>${
        row.host !== "*" && ` from ${visible(row.host)}`}
    </li>`,
  )}
</ul>`;

/** The parts of an ACL; `any`: those that are left open match everything. */
function AclForm({ submit, any }) {
  const [type, setType] = useState(param("type") || (any ? "" : "topic"));
  const operations = type ? OPERATIONS[type]?.split(" ") : [...new Set(Object.values(OPERATIONS).join(" ").split(" "))];
  const text = (name, label, placeholder, required) => html`<label>
    ${label} <input name=${name} class="mono" required=${required} maxlength="1000" placeholder=${placeholder} defaultValue=${param(name)} />
  </label>`;
  return html`<${Form} submit=${(form) => submit(Object.fromEntries(Object.entries(form).map(([name, value]) => [name, textOrNull(value)])))}>
    ${text("principal", "Principal", any || "User:alice, or * for everybody", !any)}
    <${Choice} name="permission" label="May" values=${["allow", "deny"]} any=${any} />
    <${Choice} name="type" label="On" values=${Object.keys(OPERATIONS)} any=${any} change=${({ target }) => setType(target.value)} />
    ${type !== "cluster" &&
    html`${text("name", "Name", any || "* for all", !any)}
      <${Choice} name="pattern" label="The name is" values=${["literal", "prefixed"]} any=${any} />`}
    <${Choice} name="operation" label="Operation" values=${["all", ...(operations ?? [])]} any=${any} />
    ${text("host", "From address", any || "all", false)}
  <//>`;
}

const AddAcl = ({ order }) => html`<${AclForm}
  submit=${(body) =>
    order({
      title: "Add an ACL",
      path: "/change/acl-creation",
      body,
      action: "Add it",
      draw: ({ acl }) => html`<${Acls} rows=${[acl]} />${acl.permission === "deny" && html`<p>A denial overrides every permission.</p>`}`,
    })}
/>`;

const DeleteAcls = ({ order }) => html`<${AclForm}
  any="any"
  submit=${(body) =>
    order({
      title: "Delete ACLs",
      path: "/change/acl-deletion",
      body,
      action: "Delete them",
      danger: true,
      draw: ({ rows }) => html`<p>${rows.length === 1 ? "This ACL is" : `These ${count(rows.length)} ACLs are`} deleted:</p><${Acls} rows=${rows} />`,
    })}
/>`;

const Form = ({ submit, children }) => html`<form
  class="fields"
  onSubmit=${(event) => {
    event.preventDefault();
    submit(Object.fromEntries(new FormData(event.target)));
    for (const input of event.target.querySelectorAll("[type=password]")) input.value = "";
  }}
>
  ${children}
  <button class="primary">Show the plan</button>
</form>`;

const KINDS = {
  produce: ["Write a record", Produce],
  delete: ["Delete records", Delete],
  reset: ["Move a group's offsets", Reset],
  create: ["Create a topic", Create],
  "delete-topic": ["Delete a topic", DeleteTopic],
  abort: ["Abort a transaction", Abort],
  password: ["Add a user, change a password", Password],
  "user-deletion": ["Delete a user", DeleteUser],
  "acl-creation": ["Add an ACL", AddAcl],
  "acl-deletion": ["Delete ACLs", DeleteAcls],
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
