// Runs before the first paint, so that no page flashes in the other theme.
"use strict";
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem("theme");
  } catch {
    // Without storage the system's theme stays.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
