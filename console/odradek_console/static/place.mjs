// The address of the page: path and parameters, as signals. Every view has a link of its own.
import { computed, signal } from "./vendor/signals.mjs";

const read = () => ({
  path: location.pathname,
  params: new URLSearchParams(location.search),
});

/** The present address: `{path, params}`. */
export const place = signal(read());

addEventListener("popstate", () => {
  place.value = read();
});

/** The time zone of all times on the page: "utc", "local" or an IANA name. */
export const zone = computed(() => {
  const name = place.value.params.get("zone") ?? "utc";
  return name === "utc" || name === "local" || isZone(name) ? name : "utc";
});

function isZone(name) {
  try {
    new Intl.DateTimeFormat("en", { timeZone: name });
    return true;
  } catch {
    return false;
  }
}

/** The cluster that the address names; "" if it names none. */
export const cluster = computed(() => place.value.params.get("cluster") ?? "");

/** An address inside the console, with the time zone and the cluster carried on, unless `params` has them. */
export function address(path, params = {}) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  for (const name of ["zone", "cluster"]) {
    const kept = param(name);
    if (kept && !(name in params) && !url.searchParams.has(name)) url.searchParams.set(name, kept);
  }
  return url.pathname + url.search;
}

/** Go to an address of the console. */
export function go(path, params = {}) {
  history.pushState(null, "", address(path, params));
  place.value = read();
  scrollTo(0, 0);
}

/** Change parameters of the present address; null or "" takes one out. */
export function change(params) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(params)) {
    if (value === null || value === undefined || value === "") url.searchParams.delete(name);
    else url.searchParams.set(name, value);
  }
  history.replaceState(null, "", url.pathname + url.search);
  place.value = read();
}

/** A parameter of the present address, or "" without it. */
export const param = (name) => place.value.params.get(name) ?? "";

/** Replace the values of parameters by lists, and take the parameters `without` out. */
export function setAll(lists, without = []) {
  const url = new URL(location.href);
  for (const name of [...Object.keys(lists), ...without]) url.searchParams.delete(name);
  for (const [name, values] of Object.entries(lists)) {
    for (const value of values) url.searchParams.append(name, value);
  }
  history.pushState(null, "", url.pathname + url.search);
  place.value = read();
}
