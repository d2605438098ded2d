// Where each cluster stands, with links that keep the page.
import { useAsked } from "../api.mjs";
import { count, duration, visible } from "../format.mjs";
import { address } from "../place.mjs";
import { Badge, Failure, Heading, Link, Loading, Sentences, html } from "../ui.mjs";

const REFRESH_MS = 3000;

/** The state of a cluster: level and word. */
function stateOf(row) {
  if (row.late_s !== null && row.late_s !== undefined) return ["warning", `No answer for ${duration(row.late_s * 1000)}`];
  if (row.state === "asking") return ["none", "Asking"];
  if (row.state === "sign-in") return ["none", "Sign in"];
  if (row.state === "failed") return ["error", row.error.unreachable ? "No answer" : "Error"];
  if (!row.problems.length) return ["good", "Good"];
  const errors = row.problems.some(({ level }) => level === "error");
  return [errors ? "error" : "warning", "Look"];
}

const many = (number, one) => `${count(number)} ${one}${number === 1 ? "" : "s"}`;

function State({ row }) {
  if (row.state === "failed") return html`<${Failure} error=${{ ...row.error, message: row.error.title }} />`;
  if (row.state !== "known") return null;
  const problems = row.problems.map((each) => ({ ...each, to: each.to && address(each.to, { cluster: row.name }) }));
  return html`
    <p>
      ${["node", "topic", "group"].map((one) => many(row[`${one}s`], one)).join(", ")}${row.open_transactions > 0 &&
      `, ${many(row.open_transactions, "open transaction")}`}
    </p>
    ${problems.length > 0 && html`<${Sentences} rows=${problems} />`}
    ${row.more_problems > 0 && html`<p class="faint">and ${many(row.more_problems, "more problem")}</p>`}
  `;
}

export default function Clusters() {
  const { data, error } = useAsked("/clusters", {}, { everyMs: REFRESH_MS });
  const page = location.pathname + location.search;
  return html`
    <${Heading} title="Clusters" about=${data && count(data.rows.length)} />
    <${Failure} error=${error} />
    ${data
      ? html`<ul class="clusters">
          ${data.rows.map((row) => {
            const [level, word] = stateOf(row);
            return html`<li key=${row.name} aria-label=${row.name}>
              <h2><${Link} to=${page} params=${{ cluster: row.name }}>${visible(row.name)}<//> <${Badge} level=${level}>${word}<//></h2>
              ${row.bootstrap !== row.name && html`<p class="faint mono">${visible(row.bootstrap)}</p>`}
              <${State} row=${row} />
            </li>`;
          })}
        </ul>`
      : !error && html`<${Loading} />`}
  `;
}
