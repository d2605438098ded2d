"""The web console, a Kafka client with web pages, in a separate process, for any Kafka.

The console sends requests to brokers only by `Admin` and `Consumer`, as the browser's principal, so
the brokers' ACLs decide what is shown. The server (`server.py`) serves static files, JSON under
`/api` and events under `/api/live`; the pages in `static/` need no build step.

To add a page:

1. Write `<family>.py` here with `VIEWS` (path below `/api` to an async function of
   `Asked` that returns a JSON object) and, for data that pages have to poll, `FEEDS` (name to a
   `Feed`); `STREAMS` (path to an async function of `Asked` that returns a `Stream`) for files and
   long answers.
   Add the module to `_FAMILIES` in `server.py`. Ask brokers through `asked.session.admin()`, and
   through `asked.session.cached(...)` for answers that several pages share. Errors of the client
   become JSON automatically; raise `HttpProblem` for other errors. Lists go through `page_of`,
   which answers a page of rows and the total, never everything.
   A view that changes anything is a `PageChange` in `CHANGES` (path to a plan and an act,
   `changes.py`): its route exists only in a console that may write.
2. Write `static/pages/<name>.mjs` with a component as its default export. `api.mjs` sends requests
   (`get`, `useAsked`, `useLive`), `ui.mjs` has the shared parts (`Heading`, `VirtualTable`,
   `Time`, `Failure`, `Empty`, `ChangeDialog`). Text goes through `html` templates, which escape
   it; there is no innerHTML. A page gets `about`, which says whether the console may `write`.
3. Add its row to `PAGES` in `static/routes.mjs`: with `nav` and `key` a page is in the menu.
   Names of topics and groups are parameters of the address (`/topic?name=...`), because a group
   may be called `..`.
4. Test the views in `tests/console/` with `console_client`, and the page with `browser_page`.

PYTEST_DONT_REWRITE
"""
