// What the reader chose, kept by the browser where it allows that.
export const kept = {
  get: name => { try { return localStorage.getItem("agent-runtime:" + name); } catch { return null; } },
  set: (name, value) => { try { localStorage.setItem("agent-runtime:" + name, value); } catch { /* private window */ } },
};

export const dark = matchMedia("(prefers-color-scheme: dark)");
export const themeOf = () => kept.get("theme") || (dark.matches ? "dark" : "light");
