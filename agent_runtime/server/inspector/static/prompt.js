// What the model saw at a step: its prompt by parts, and where a message is in it.
import {byId, el, fill, int, percent, plural, short, span, usd} from "./dom.js";
import {compared, leftOut} from "./changes.js";
import {deltaLink, foldHead, linesOf, missing, onFold} from "./fold.js";
import {chosenStep, go, opened, place} from "./place.js";
import {file, get} from "./service.js";
import {BANDS, NAMES, labelOf} from "./words.js";

const TABS = {prompt: "Prompt", left: "Left out", compare: "Compare"};

export class PromptPane {
  constructor(thread, toSeq, seek) {
    Object.assign(this, {thread, toSeq, seek});
    this.title = el("h2.grow");
    this.tabs = Object.fromEntries(Object.entries(TABS).map(([key, name]) => [key, el("button", {role: "tab", id: "tab-" + key, "aria-controls": "panel",
      onclick: () => this.open(key), onkeydown: event => this.arrow(event, key)}, name)]));
    this.panel = el("div", {role: "tabpanel", id: "panel"});
    this.box = el("div.scroll", {id: "pscroll", tabindex: 0, role: "region", "aria-label": "What the model saw, in parts"}, this.panel);
    this.node = el("section.pane", {id: "prompt", "aria-label": "What the model saw"},
      el("header.wrap", this.title, el("div.seg", {role: "tablist", "aria-label": "What to show"}, Object.values(this.tabs))), this.box);
    onFold(() => this.draw());
  }

  open(tab) { go({tab, with: tab === "compare" ? place.with : null}, true); }

  arrow(event, key) {
    const all = Object.keys(TABS), to = all[all.indexOf(key) + ({ArrowRight: 1, ArrowLeft: -1}[event.key] || 0)];
    if (!event.key.startsWith("Arrow") || !to) return;
    event.preventDefault();
    event.stopPropagation();
    this.open(to);
    this.tabs[to].focus();
  }

  draw() {
    const key = [place.step, place.msg, place.tab, place.with, this.thread.count].join(), focused = document.activeElement;
    // Something arrived while a number is being typed: not now.
    if (key === this.key && focused.matches("input") && this.panel.contains(focused)) return;
    const kept = this.panel.contains(focused) && focused.dataset.k, y = this.box.scrollTop, i = chosenStep(this.thread.count);
    this.key = key;
    fill(this.title, `What the model saw at step ${int(i + 1)}`);
    for (const [name, tab] of Object.entries(this.tabs)) {
      tab.setAttribute("aria-selected", String(place.tab === name));
      tab.tabIndex = place.tab === name ? 0 : -1;
    }
    this.panel.setAttribute("aria-labelledby", "tab-" + place.tab);
    const body = {prompt: () => this.sections(i), left: () => leftOut(this.thread, i), compare: () => compared(this.thread, i)}[place.tab]();
    fill(this.panel, this.summary(i), body);
    this.box.scrollTop = y;
    if (kept) (this.panel.querySelector(`[data-k="${CSS.escape(kept)}"]`) || this.box).focus({preventScroll: true});
  }

  summary(i) {
    const t = this.thread, s = t.steps, total = t.prompt(i), bands = t.bands(i), off = s.prompt[i] >= 0 ? s.prompt[i] - s.counted[i] : 0;
    return el("div.sum", el("div.row.wrap.small.num", el("b", `${int(total)} tokens`),
      s.prompt[i] < 0 ? el("span", "counted by the runtime; nothing was reported") : s.cached[i] >= 0 && el("span", `${int(s.cached[i])} read from cache, ${int(total - s.cached[i])} new`),
      el("span.dim", [s.answer[i] >= 0 && `answer ${int(s.answer[i])}`, usd(s.cost[i]), s.ms[i] >= 0 && span(s.ms[i] / 1000), s.retries[i] > 0 && plural(s.retries[i], "retry", "retries")].filter(Boolean).join(" · ")),
      off && Math.abs(off) > total / 100 ? el("span.dim", {title: "The provider's count and the runtime's differ by this much; the bands are scaled to the provider's."}, `${off > 0 ? "+" : "−"}${int(Math.abs(off))} to our count`) : null),
    el("div.bar", {"aria-hidden": "true"}, bands.map((size, k) => el("i", {class: BANDS[k], css: {width: percentOf(size, total)}}))));
  }

  sections(i) {
    const t = this.thread, a = t.activationAt(i), parts = t.partsAt(i), bands = t.bands(i);
    if (!a) return el("p.blank.dim", "No activation is recorded for this step.");
    const section = (name, note, inside) => {
      const k = BANDS.indexOf(name);
      return el("section.sec", {id: "sec-" + name}, foldHead(name, name, NAMES[name], note, int(bands[k])), opened.has(name) && el("div.body", inside()));
    };
    const not = missing(parts), loaded = then => not || then(parts), raw = not ? [] : grouped(parts);
    const [first, last] = [a.observed[0], a.observed.at(-1)].map(id => t.observations.get(id));
    return [place.msg !== null && this.where(i),
      section("system", t.models[t.steps.model[i]] || "", () => loaded(all => [all.filter(p => ["system", "context"].includes(p.kind)).map(p => el("pre.out", {tabindex: 0, dir: "auto", "aria-label": p.kind}, p.text)), this.tools(a)])),
      section("observed", a.observed.length ? `${a.observed.length} stand for messages #${first ? first.first : "?"}–#${last ? last.last : "?"}` : "none", () => a.observed.length
        ? el("ul", a.observed.map(id => this.observation(id))) : el("p.dim.small", "Nothing has left the prompt yet.")),
      section("constraints", "what the user requires, never condensed", () => this.constraints(a)),
      section("state", "task and plan, as of this activation", () => loaded(all => all.filter(p => p.kind === "state").map(p => el("pre.out", {tabindex: 0, dir: "auto", "aria-label": "State note"}, p.text)))),
      section("raw", raw.length ? `${plural(raw.length, "message")}, #${raw[0].node}–#${raw.at(-1).node}` : "", () => loaded(() => el("ul", raw.map(row => this.rawRow(row)))))];
  }

  tools(a) {
    const details = this.thread.details(a.id);
    return details && details.tools ? el("div.led", details.tools.map(tool => el("span.chip.none", {title: tool.description}, `${tool.name} ${short(tool.tokens)}`))) : null;
  }

  constraints(a) {
    const details = this.thread.details(a.id);
    return missing(details) || (details.constraints.length ? linesOf(details.constraints.map(one => ({...one, priority: "critical"})), line => this.show(line.node))
      : el("p.dim.small", "None yet: what the user said stands raw."));
  }

  rawRow(row) {
    const node = this.thread.nodeOf(row.node);
    return el(`li.rn${row.node === place.msg ? ".hit" : ""}`, el("button", {"data-k": "raw" + row.node, onclick: () => this.show(row.node)}, el("span"), el("span.num.small", "#" + row.node),
      el("span.clip.small", el("bdi", node ? labelOf(node) : row.kind)), el("span.num.small", row.cut && "cut · ", int(row.tokens))));
  }

  show(seq) { go({msg: seq}); this.toSeq(seq); }

  // An observation opens to its lines and identifiers, then its parts, down to the very messages.
  observation(id, deep) {
    const t = this.thread, one = t.observations.get(id), key = "o" + id;
    if (!one) return null;
    const hit = place.msg !== null && place.msg >= one.first && place.msg <= one.last;
    const kind = one.level ? `reflection, level ${one.level}` : "observation";
    return el(`li.ob${hit ? ".hit" : ""}`, {id: deep ? null : "ob-" + id}, foldHead(key, null, key, `${kind} of #${one.first}–#${one.last}, by ${one.origin === "rules" ? "rules" : "a model"}${one.provisional ? ", provisional" : ""}`,
      `${short(one.of)} → ${int(one.tokens)}`), opened.has(key) && el("div.in", this.inObservation(one)));
  }

  inObservation(one) {
    const details = this.thread.observation(one.id), not = missing(details);
    if (not) return not;
    const gone = details.left_out_count;
    return [linesOf(details.lines, line => this.show(line.node)),
      details.archive && el("p.small.dim", `${plural(details.archive.lines, "older line")} are left out here; the log keeps them.`),
      details.ledger.length ? [el("h3", "Identifiers seen there"), el("div.led", details.ledger.slice(0, 40).map(text => el("button", {title: `Find ${text}`, onclick: () => this.seek(text)}, text)))] : null,
      one.parts.length ? [el("h3", `Written from ${plural(one.parts.length, "observation")}${gone ? `; ${plural(gone, "of their lines is", "of their lines are")} not here` : ""}`), el("ul", one.parts.map(id => this.observation(id, true)))]
        : [el("h3", `Stands for ${plural(this.thread.between(one.first, one.last).length, "message")}`), el("ul", this.thread.between(one.first, one.last).map(seq => el("li", deltaLink(this.thread, seq, () => this.show(seq)))))]];
  }

  where(i) {
    const t = this.thread, seq = place.msg, at = t.steps.node[i];
    const found = file ? this.whereHere(seq, i) : t.once(`where/${seq}/${at}`, () => get(t.path("where", {node: seq, at})));
    const body = missing(found) || [el("p.small", {dir: "auto"}, found.summary),
      found.path.length ? el("div.path", el("span", "#" + seq), found.path.toReversed().map(id => [" → ", el("button", {onclick: () => this.reveal(found.path, id)}, `o${id}`)])) : null,
      found.prepared?.length ? el("p.small.dim", `Prepared to stand for it from the next activation on: ${found.prepared.map(id => "o" + id).join(", ")}`) : null,
      found.lines.length ? linesOf(found.lines) : null,
      found.cut.map(one => el("p.small.dim", `${one.tool}: ${int(one.shown)} of ${int(one.of)} characters shown`))];
    const raw = found && found.last_raw ? t.stepOf(found.last_raw) : -1;
    return el("section.where", {"aria-label": "Where this message is"}, el("div.row", el("b.grow.clip", `Where #${seq} is at step ${int(i + 1)}`),
      el("button.plain.small", {onclick: () => go({msg: null}, true), "aria-label": "Close"}, "✕")), body,
    el("div.row.wrap", el("button.link.small", {onclick: () => go({step: Math.min(t.count, (t.stepOf(seq) < 0 ? t.stepAfter(seq) : t.stepOf(seq)) + 1)})}, "Go to where it was said"),
      raw >= 0 && raw !== i ? el("button.link.small", {onclick: () => go({step: raw + 1})}, `Last seen whole at step ${int(raw + 1)}`) : null));
  }

  whereHere(seq, i) {
    const where = this.thread.whereAt(seq, i);
    return {summary: where.text + ".", path: where.by ? this.thread.way(where.by, seq) : [], lines: [], cut: []};
  }

  reveal(path, id) {
    for (const one of path) opened.add("o" + one);
    opened.add("observed");
    go({obs: id}, true);
    const target = byId("ob-" + path[0]);
    if (target) target.scrollIntoView({block: "start"});
  }
}

const percentOf = (part, all) => all ? 100 * part / all + "%" : percent(0, 0);

// One row a message: an exchange is an answer and its results.
function grouped(parts) {
  const rows = new Map();
  for (const part of parts) {
    if (part.node === null) continue;
    const row = rows.get(part.node) || {node: part.node, kind: part.kind, tokens: 0, cut: false};
    row.tokens += part.tokens;
    row.cut ||= part.cut;
    rows.set(part.node, row);
  }
  return [...rows.values()];
}
