// The history of a subject in sentences: its present state and its events.
import { count, visible } from "./format.mjs";
import { Empty, Link, Missing, Time, html } from "./ui.mjs";

/** The link to the timeline of a subject; `type` is "group", "transaction" or "producer". */
export const TimelineLink = ({ type, name }) =>
  html`<${Link} class="button" to="/timeline" params=${{ type, name }}>Timeline<//>`;

/** A word for a shell. */
export const quoted = (text) =>
  /^[\w.:/-]+$/.test(text) && !text.startsWith("-") ? text : `'${text.replaceAll("'", "'\\''")}'`;

/** A command to copy. */
export const Command = ({ children }) => html`<code class="command">${visible([children].flat().join(""))}</code>`;

/**
 * The present state as the broker describes it; `without`: states that the page shows elsewhere.
 */
export function States({ history, without }) {
  const shown = history.states.filter((state) => !without?.test(state.name));
  return shown.length > 0 && html`<ul class="states">${shown.map((state) => html`<li>${visible(state.text)}</li>`)}</ul>`;
}

/** The newest events, newest first. */
export function Events({ history }) {
  if (history.missing) return html`<${Missing} reasons=${[history.missing]} />`;
  if (!history.events.length) {
    return html`<${Empty} title="Nothing has happened">
      Events are kept in the broker's memory, from its start on.
    <//>`;
  }
  return html`<ol class="events" reversed tabindex="0">
      ${history.events.toReversed().map(
        (event) => html`<li key=${`${event.time_ms} ${event.text}`}>
          <${Time} ms=${event.last_time_ms} />
          <span>
            ${visible(event.text)}
            ${event.times > 1 && html` <span class="badge">${count(event.times)} times</span>`}
          </span>
        </li>`,
      )}
    </ol>
    ${history.forgotten &&
    html`<p class="faint">Older events are forgotten; they are complete since <${Time} ms=${history.complete_since_ms} />.</p>`}`;
}
