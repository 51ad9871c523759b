// Elements, text and figures. Nothing here knows what the page shows.

// An emoji may have its variation selector; elsewhere selectors can carry text that nobody sees.
const HIDDEN = /([\0-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}]|(?<!\p{Extended_Pictographic})\ufe0f)/gu;
const codeOf = char => "U+" + char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");

export const byId = id => document.getElementById(id);

// What the page itself has of a view.
export const template = id => byId(id).content.firstElementChild.cloneNode(true);

// Text with codes in place of characters that hide or reorder text: for attributes and titles.
export const visible = text => String(text).replace(HIDDEN, codeOf);

// The same as nodes. Whatever a run wrote reaches the page through here.
const nodesOf = kids => kids.flat(Infinity).filter(kid => kid || kid === 0)
  .flatMap(kid => kid.nodeType ? kid : String(kid).split(HIDDEN).map((part, i) => i % 2 ? el("span.ctl", {title: "A hidden character"}, codeOf(part)) : part));

// el("span.num.small", {title: "…"}, kids): the classes stand behind the tag, attributes may be left out.
export function el(name, props, ...kids) {
  const [tag, ...classes] = name.split("."), node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  if (props?.constructor !== Object) kids.unshift(props);
  else for (const [key, value] of Object.entries(props)) {
    if (value == null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "css") for (const [property, set] of Object.entries(value)) node.style.setProperty(property, set);
    else node.setAttribute(key, value === true ? "" : visible(value));
  }
  node.append(...nodesOf(kids));
  return node;
}

export const fill = (box, ...kids) => box.replaceChildren(...nodesOf(kids));

// A button, of classes as behind a tag.
export const button = (name, onclick, classes = "", props) => el("button" + classes, {type: "button", onclick, ...props}, name);

// What is allowed only as a whole stays off until all of it has been shown.
export function enable(controls, on) {
  for (const control of controls) control.disabled = !on || control.matches("[data-whole]") && control.closest(".need").querySelector(".unread");
}

// A longer text that scrolls by itself.
export const block = (label, text, classes = ".out") => el("pre" + classes, {tabindex: 0, "aria-label": label}, text);

// Formats of `Intl` read their language's data when they are made, which keeps the page from being ready.
export const int = n => n == null || n < 0 ? "unknown" : String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, ",");
export function short(n) {
  if (n == null || n < 0) return "?";
  if (n < 1000) return String(Math.round(n));
  return n < 999500 ? (n / 1e3).toFixed(n < 9950 ? 1 : 0) + "K" : (n / 1e6).toFixed(2) + "M";
}
export const usd = n => n == null || n < 0 ? "price unknown" : "$" + (n / 1e9).toFixed(n && n < 1e8 ? 4 : 2);
export const percent = (part, all) => all > 0 && part >= 0 ? Math.round(100 * part / all) + "%" : "–";
export const plural = (n, one, many = one + "s") => `${int(n)} ${n === 1 ? one : many}`;

// A day and a time of here, as ISO 8601 writes them.
const stamp = seconds => new Date(seconds * 1000 - 60000 * new Date(seconds * 1000).getTimezoneOffset()).toISOString().slice(0, 19).replace("T", " ");
export const clock = seconds => stamp(seconds).slice(11);
export const when = seconds => stamp(seconds).slice(0, 10) === stamp(Date.now() / 1000).slice(0, 10) ? clock(seconds) : stamp(seconds).slice(0, 16);
export function span(seconds) {
  const [n, unit] = seconds < 100 ? [seconds, "s"] : seconds < 6000 ? [seconds / 60, "min"]
    : seconds < 172800 ? [seconds / 3600, "h"] : [seconds / 86400, "days"];
  return `${n < 10 && unit === "s" ? n.toFixed(1) : Math.round(n)} ${unit}`;
}

// One region is read aloud: for what needs a person.
export function say(text) { byId("said").textContent = visible(text); }

export function notice(text, kind = "") {
  const box = byId("note");
  box.className = kind;
  box.hidden = !text;
  fill(box, el("span.grow", text), button("Close", () => notice(""), ".plain.small"));
}
