// Elements, text and figures. Nothing here knows what the page shows.

// An emoji may have its variation selector; elsewhere selectors can carry text that nobody sees.
const HIDDEN = /[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}]|(?<!\p{Extended_Pictographic})\ufe0f/gu;
const codeOf = char => "U+" + char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");

export const byId = id => document.getElementById(id);

// Text with codes in place of characters that hide or reorder text: for attributes and titles.
export const visible = text => String(text).replace(HIDDEN, codeOf);

// The same as nodes. Whatever a run wrote reaches the page through here.
function textOf(value) {
  const text = String(value), out = document.createDocumentFragment();
  let from = 0;
  for (const hit of text.matchAll(HIDDEN)) {
    const mark = document.createElement("span");
    mark.className = "ctl";
    mark.title = "A character that cannot be seen";
    mark.textContent = codeOf(hit[0]);
    out.append(text.slice(from, hit.index), mark);
    from = hit.index + hit[0].length;
  }
  out.append(text.slice(from));
  return out;
}

// el("span.num.small", {title: "…"}, kids): the classes stand behind the tag, attributes may be left out.
export function el(name, props, ...kids) {
  const [tag, ...classes] = name.split("."), node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  if (props == null || props.nodeType || typeof props !== "object" || Array.isArray(props)) kids.unshift(props);
  else for (const [key, value] of Object.entries(props)) {
    if (value == null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "css") for (const [property, set] of Object.entries(value)) node.style.setProperty(property, set);
    else node.setAttribute(key, value === true ? "" : visible(value));
  }
  appendAll(node, kids);
  return node;
}

function appendAll(node, kids) {
  for (const kid of kids) {
    if (kid == null || kid === false) continue;
    if (Array.isArray(kid)) appendAll(node, kid);
    else node.append(kid.nodeType ? kid : textOf(kid));
  }
}

export function fill(box, ...kids) {
  const all = document.createDocumentFragment();
  appendAll(all, kids);
  box.replaceChildren(all);
}

const figures = new Intl.NumberFormat("en-US", {maximumFractionDigits: 0});
export const int = n => n == null || n < 0 ? "unknown" : figures.format(n);
export function short(n) {
  if (n == null || n < 0) return "?";
  if (n < 1000) return String(Math.round(n));
  return n < 999500 ? (n / 1e3).toFixed(n < 9950 ? 1 : 0) + "K" : (n / 1e6).toFixed(2) + "M";
}
export const usd = n => n == null || n < 0 ? "price unknown" : "$" + (n / 1e9).toFixed(n && n < 1e8 ? 4 : 2);
export const percent = (part, all) => all > 0 && part >= 0 ? Math.round(100 * part / all) + "%" : "–";
export const plural = (n, one, many = one + "s") => `${int(n)} ${n === 1 ? one : many}`;

const twoDigits = n => String(n).padStart(2, "0");
export function clock(seconds) {
  const t = new Date(seconds * 1000);
  return `${twoDigits(t.getHours())}:${twoDigits(t.getMinutes())}:${twoDigits(t.getSeconds())}`;
}
export function when(seconds) {
  const t = new Date(seconds * 1000), today = new Date().toDateString() === t.toDateString();
  return today ? clock(seconds) : `${t.getFullYear()}-${twoDigits(t.getMonth() + 1)}-${twoDigits(t.getDate())} ${clock(seconds).slice(0, 5)}`;
}
export function span(seconds) {
  const [n, unit] = seconds < 100 ? [seconds, "s"] : seconds < 6000 ? [seconds / 60, "min"]
    : seconds < 172800 ? [seconds / 3600, "h"] : [seconds / 86400, "days"];
  return `${n < 10 && unit === "s" ? n.toFixed(1) : Math.round(n)} ${unit}`;
}

// What the reader chose, kept by the browser where it allows that.
export const kept = {
  get: name => { try { return localStorage.getItem("agent-runtime:" + name); } catch { return null; } },
  set: (name, value) => { try { localStorage.setItem("agent-runtime:" + name, value); } catch { /* private window */ } },
};

// One region is read aloud: for what needs a person.
export function say(text) { byId("said").textContent = visible(text); }

export function notice(text, kind = "") {
  const box = byId("note");
  box.className = kind;
  box.hidden = !text;
  fill(box, text && [el("span.grow", text), el("button.plain.small", {onclick: () => notice("")}, "Close")]);
}
