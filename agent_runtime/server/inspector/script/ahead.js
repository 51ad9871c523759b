// Asks for what a thread's page opens with, and sets its theme, while the page's own script is loaded.
import {themeOf} from "./theme.js";

const [path, query] = location.hash.slice(2).split("?"), head = /(?:^|&)head=(\d+)/.exec(query);
if (/^threads\/[^/]+$/.test(path)) {
  const asked = `inspector/${path}/opening${head ? "?head=" + head[1] : ""}`;
  window.ahead = {path: asked, answer: fetch("api/" + asked, {signal: AbortSignal.timeout(60000)})};
  // Who takes the answer hears of a failure.
  window.ahead.answer.catch(() => {});
}
// Before the first paint, and now, because the browser waits for what it kept.
document.documentElement.dataset.theme = themeOf();
