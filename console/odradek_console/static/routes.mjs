// The pages: address, title, module. A page with `nav` is in the menu, and `g` and then `key` goes
// to it; a page with `write` is there only if the console may change things.
export const PAGES = [
  { path: "/", title: "Overview", nav: "Overview", key: "o", load: () => import("./pages/overview.mjs") },
  { path: "/topics", title: "Topics", nav: "Topics", key: "t", load: () => import("./pages/topics.mjs") },
  { path: "/topic", title: "Topic", load: () => import("./pages/topic.mjs") },
  { path: "/topic/records", title: "Records", load: () => import("./pages/records.mjs") },
  { path: "/topic/tail", title: "Live tail", load: () => import("./pages/tail.mjs") },
  { path: "/groups", title: "Groups", nav: "Groups", key: "g", load: () => import("./pages/groups.mjs") },
  { path: "/group", title: "Group", load: () => import("./pages/group.mjs") },
  { path: "/transactions", title: "Transactions", nav: "Transactions", key: "x", load: () => import("./pages/transactions.mjs") },
  { path: "/transaction", title: "Transaction", load: () => import("./pages/transaction.mjs") },
  { path: "/producers", title: "Producers", load: () => import("./pages/producers.mjs") },
  { path: "/producer", title: "Producer", load: () => import("./pages/producers.mjs") },
  { path: "/timeline", title: "Timeline", nav: "Timeline", key: "l", load: () => import("./pages/timeline.mjs") },
  { path: "/connections", title: "Connections", nav: "Connections", key: "c", load: () => import("./pages/connections.mjs") },
  { path: "/client-metrics", title: "Client metrics", nav: "Client metrics", key: "m", load: () => import("./pages/client-metrics.mjs") },
  { path: "/requests", title: "Requests", nav: "Requests", key: "r", load: () => import("./pages/requests.mjs") },
  { path: "/settings", title: "Settings", nav: "Settings", key: "s", load: () => import("./pages/settings.mjs") },
  { path: "/access", title: "Access", nav: "Access", key: "a", load: () => import("./pages/access.mjs") },
  { path: "/write", title: "Change", nav: "Change", key: "w", write: true, load: () => import("./pages/write.mjs") },
];
