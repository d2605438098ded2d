// The pages: address, title, module. With `nav` a page stands in the menu; `g` and then `key` goes there.
export const PAGES = [
  { path: "/", title: "Overview", nav: "Overview", key: "o", load: () => import("./pages/overview.mjs") },
  { path: "/topics", title: "Topics", nav: "Topics", key: "t", load: () => import("./pages/topics.mjs") },
  { path: "/timeline", title: "Timeline", nav: "Timeline", key: "l", load: () => import("./pages/timeline.mjs") },
];
