// Rows that open, lines of observations, links to messages: shared by what stands in the prompt's pane.
import {button, el} from "./dom.js";
import {opened, turn} from "./place.js";
import {Problem} from "./service.js";
import {MARKS, labelOf} from "./words.js";

let folded = () => {};
export function onFold(callback) { folded = callback; }

// What stands in place of values that are being read, or could not be; null once all are there.
export function missing(...values) {
  const failed = values.find(one => one instanceof Problem);
  return failed ? el("p.bad.small", {role: "alert"}, failed.told) : values.every(Boolean) ? null : el("div.sk");
}

export function foldHead(key, swatch, name, note, figure) {
  const up = opened.has(key);
  return button([el("span.dim", {"aria-hidden": "true"}, up ? "▾" : "▸"), el("span.row", swatch && el("i.sw." + swatch), el("b.num", name)), el("span.clip.dim.small", note), el("span.num.small", figure)],
    () => { turn(key); folded(); }, "", {"aria-expanded": String(up), "data-k": key});
}

export const linesOf = (lines, show) => el("ul.lines", lines.map(line => el("li." + line.priority, el("span.m", {title: line.priority}, MARKS[line.priority], el("span.vh", line.priority)), el("p",
  line.text, show && line.node ? [" ", button("#" + line.node, () => show(line.node), ".link.small")] : line.of ? el("span.dim", " o" + line.of) : null))));

export function messageLink(thread, seq, show) {
  const node = thread.nodeOf(seq);
  return button(el("bdi", `#${seq} · ${node ? labelOf(node) : "…"}`), () => show(seq), ".link.small.clip.wide", {"data-k": "to" + seq});
}
