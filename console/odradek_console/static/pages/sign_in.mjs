// Signing in as a user of the broker: the console has no users of its own.
import { useState } from "../vendor/hooks.mjs";
import { post, signedOut } from "../api.mjs";
import { Failure, Heading, html } from "../ui.mjs";

const NAMES = { OAUTHBEARER: "OAUTHBEARER (a token)" };

export default function SignIn({ about }) {
  const [mechanism, setMechanism] = useState(
    about.mechanisms.includes(about.mechanism) ? about.mechanism : about.mechanisms[0],
  );
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await post("/sign-in", { mechanism, ...Object.fromEntries(new FormData(event.target)) });
      signedOut.value += 1;
    } catch (failed) {
      setError(failed);
      setBusy(false);
    }
  };
  const token = mechanism === "OAUTHBEARER";
  return html`<div class="sign-in">
    <${Heading} title="Sign in" />
    <p class="faint">
      With a user of the brokers at <span class="mono">${about.bootstrap}</span>. Their ACLs decide what you see.
    </p>
    <${Failure} error=${error} />
    <form onSubmit=${submit}>
      <label>
        Mechanism
        <select value=${mechanism} onChange=${({ target }) => setMechanism(target.value)}>
          ${about.mechanisms.map((name) => html`<option value=${name}>${NAMES[name] ?? name}</option>`)}
        </select>
      </label>
      ${token
        ? html`<label>Token <textarea name="token" rows="5" required autocomplete="off" spellcheck=${false}></textarea></label>`
        : html`
            <label>User <input name="user" required autocomplete="username" autofocus /></label>
            <label>Password <input name="password" type="password" required autocomplete="current-password" /></label>
          `}
      <button class="primary" disabled=${busy}>${busy ? "Signing in …" : "Sign in"}</button>
    </form>
  </div>`;
}
