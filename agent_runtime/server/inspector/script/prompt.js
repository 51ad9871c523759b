// What the model saw at a step: its prompt by parts, and where a message is in it.
import {block, button, byId, el, fill, int, plural, short, span, usd} from "./dom.js";
import {compared, leftOut} from "./changes.js";
import {foldHead, linesOf, messageLink, missing, onFold} from "./fold.js";
import {chosenStep, go, opened, place} from "./place.js";
import {file} from "./service.js";
import {BANDS, NAMES, labelOf} from "./words.js";

export class PromptPane {
  // Takes the pane that stands in the document. `toSeq` shows a message in the log; `seek` finds a text.
  constructor(thread, toSeq, seek) {
    Object.assign(this, {thread, seek});
    this.show = msg => { go({msg}); toSeq(msg); };
    [this.title, this.panel, this.box] = ["ptitle", "panel", "pscroll"].map(byId);
    this.tabs = [...document.querySelectorAll("[role=tab]")];
    for (const tab of this.tabs) {
      tab.onclick = () => this.open(tab);
      tab.onkeydown = event => this.arrow(event);
    }
    // Kept here, because to ask for it makes the browser lay out the page.
    this.box.onscroll = () => { this.y = this.box.scrollTop; };
    onFold(() => this.draw());
  }

  open({dataset: {tab}}) { go({tab, with: tab === "compare" ? place.with : null}, true); }

  arrow(event) {
    const to = this.tabs[this.tabs.indexOf(event.target) + ({ArrowRight: 1, ArrowLeft: -1}[event.key] || NaN)];
    if (!to) return;
    event.preventDefault();
    event.stopPropagation();
    this.open(to);
    to.focus();
  }

  draw() {
    const key = [place.step, place.msg, place.tab, place.with, this.thread.count].join(), focused = document.activeElement;
    // Something arrived while a number is being typed: not now.
    if (key === this.key && focused.matches("#panel input")) return;
    const kept = this.panel.contains(focused) && focused.dataset.k, i = chosenStep(this.thread.count);
    this.key = key;
    fill(this.title, `What the model saw at step ${int(i + 1)}`);
    for (const tab of this.tabs) {
      const chosen = tab.dataset.tab === place.tab;
      tab.ariaSelected = String(chosen);
      tab.tabIndex = chosen ? 0 : -1;
    }
    this.panel.setAttribute("aria-labelledby", "tab-" + place.tab);
    fill(this.panel, this.summary(i), !this.thread.fronted ? missing(null) : place.tab === "left" ? leftOut(this.thread, i) : place.tab === "compare" ? compared(this.thread, i) : this.sections(i));
    if (this.y) this.box.scrollTop = this.y;
    if (kept) (this.panel.querySelector(`[data-k="${CSS.escape(kept)}"]`) || this.box).focus({preventScroll: true});
  }

  summary(i) {
    const t = this.thread, s = t.steps, total = t.prompt(i), reported = s.prompt[i] >= 0, off = reported ? s.prompt[i] - s.counted[i] : 0;
    return el("div.sum", el("div.row.wrap.small.num", el("b", `${int(total)} tokens`),
      reported ? s.cached[i] >= 0 && el("span", `${int(s.cached[i])} read from cache, ${int(total - s.cached[i])} new`) : el("span", "counted by the runtime; nothing was reported"),
      el("span.dim", [s.answer[i] >= 0 && `answer ${int(s.answer[i])}`, usd(s.cost[i]), s.ms[i] >= 0 && span(s.ms[i] / 1000), s.retries[i] > 0 && plural(s.retries[i], "retry", "retries")].filter(Boolean).join(" · ")),
      Math.abs(off) > total / 100 && el("span.dim", {title: "The provider counts so much more or less; the bands are scaled to its count."}, `${off > 0 ? "+" : "−"}${int(Math.abs(off))} to our count`)),
    el("div.bar", {"aria-hidden": "true"}, t.bands(i).map((size, k) => size > 0 && el("i." + BANDS[k], {css: {"flex-grow": size}}))));
  }

  sections(i) {
    const t = this.thread, a = t.activationAt(i), parts = t.partsAt(i), bands = t.bands(i);
    if (!a) return el("p.blank.dim", "No activation is recorded for this step.");
    const loaded = then => missing(parts) || then(), of = (...kinds) => parts.filter(part => kinds.includes(part.kind)).map(part => block(part.kind, part.text));
    const raw = missing(parts) ? [] : grouped(parts), [first, last] = [a.observed[0], a.observed.at(-1)].map(id => t.observations.get(id));
    const inside = {
      system: [t.models[t.steps.model[i]] || "", () => loaded(() => [of("system", "context"), this.tools(a)])],
      observed: [a.observed.length ? `${a.observed.length} stand for messages #${first?.first ?? "?"}–#${last?.last ?? "?"}` : "none",
        () => a.observed.length ? el("ul", a.observed.map(id => this.observation(id))) : el("p.dim.small", "Nothing has left the prompt.")],
      constraints: ["what the user requires, never condensed", () => this.constraints(a)],
      state: ["task and plan, as of this activation", () => loaded(() => of("state"))],
      raw: [raw.length ? `${plural(raw.length, "message")}, #${raw[0].node}–#${raw.at(-1).node}` : "", () => loaded(() => el("ul", raw.map(row => this.rawRow(row))))],
    };
    return [place.msg !== null && this.where(i), BANDS.map((name, k) => el("section.sec", {id: "sec-" + name}, foldHead(name, name, NAMES[name], inside[name][0], int(bands[k])), opened.has(name) && el("div.body", inside[name][1]())))];
  }

  tools(a) {
    const tools = this.thread.details(a.id)?.tools || [];
    return el("div.led", tools.map(tool => el("span.chip.none", {title: tool.description}, `${tool.name} ${short(tool.tokens)}`)));
  }

  constraints(a) {
    const details = this.thread.details(a.id);
    return missing(details) || (details.constraints.length ? linesOf(details.constraints.map(one => ({...one, priority: "critical"})), this.show) : el("p.dim.small", "None yet: what the user said stands raw."));
  }

  rawRow({node: seq, kind, cut, tokens}) {
    const node = this.thread.nodeOf(seq);
    return el("li.rn" + (seq === place.msg ? ".hit" : ""), button([el("span"), el("span.num.small", "#" + seq), el("span.clip.small", el("bdi", node ? labelOf(node) : kind)), el("span.num.small", cut && "cut · ", int(tokens))],
      () => this.show(seq), "", {"data-k": "raw" + seq}));
  }

  // An observation opens to its lines and identifiers, then its parts, down to the very messages.
  observation(id, deep) {
    const one = this.thread.observations.get(id), key = "o" + id, seq = place.msg;
    return one && el("li.ob" + (seq !== null && seq >= one.first && seq <= one.last ? ".hit" : ""), {id: !deep && "ob-" + id},
      foldHead(key, null, key, `${one.level ? `reflection, level ${one.level}` : "observation"} of #${one.first}–#${one.last}, by ${one.origin === "rules" ? "rules" : "a model"}${one.provisional ? ", provisional" : ""}`, `${short(one.of)} → ${int(one.tokens)}`),
      opened.has(key) && el("div.in", this.inObservation(one)));
  }

  inObservation(one) {
    const t = this.thread, details = t.observation(one.id), not = missing(details);
    if (not) return not;
    const gone = details.left_out_count, messages = t.between(one.first, one.last);
    return [linesOf(details.lines, this.show),
      details.archive && el("p.small.dim", `${plural(details.archive.lines, "older line")} are left out here; the log keeps them.`),
      details.ledger.length > 0 && [el("h3", "Identifiers seen there"), el("div.led", details.ledger.slice(0, 40).map(text => button(text, () => this.seek(text), "", {title: `Find ${text}`})))],
      one.parts.length ? [el("h3", `Written from ${plural(one.parts.length, "observation")}${gone ? `; ${plural(gone, "of their lines is", "of their lines are")} not here` : ""}`), el("ul", one.parts.map(id => this.observation(id, true)))]
        : [el("h3", `Stands for ${plural(messages.length, "message")}`), el("ul", messages.map(seq => el("li", messageLink(t, seq, this.show))))]];
  }

  where(i) {
    const t = this.thread, seq = place.msg, own = t.stepOf(seq), found = file ? this.whereHere(seq, i) : t.once(t.path("where", {node: seq, at: t.steps.node[i]}));
    const whole = found?.last_raw ? t.stepOf(found.last_raw) : -1, toStep = (name, step) => button(name, () => go({step}), ".link.small");
    return el("section.where", {"aria-label": "Where this message is"}, el("div.row", el("b.grow.clip", `Where #${seq} is at step ${int(i + 1)}`), button("✕", () => go({msg: null}, true), ".plain.small", {"aria-label": "Close"})),
      missing(found) || [el("p.small", found.summary),
        found.path.length > 0 && el("div.path", "#" + seq, found.path.toReversed().map(id => [" → ", button("o" + id, () => this.reveal(found.path, id))])),
        found.prepared?.length > 0 && el("p.small.dim", `Prepared to stand for it from the next activation on: ${found.prepared.map(id => "o" + id).join(", ")}`),
        found.lines.length > 0 && linesOf(found.lines),
        found.cut.map(one => el("p.small.dim", `${one.tool}: ${int(one.shown)} of ${int(one.of)} characters shown`))],
      el("div.row.wrap", toStep("Go to where it was said", Math.min(t.count, (own < 0 ? t.stepAfter(seq) : own) + 1)), whole >= 0 && whole !== i && toStep(`Last seen whole at step ${int(whole + 1)}`, whole + 1)));
  }

  whereHere(seq, i) {
    const where = this.thread.whereAt(seq, i);
    return {summary: where.text + ".", path: where.by ? this.thread.way(where.by, seq) : [], lines: [], cut: []};
  }

  reveal(path, id) {
    for (const one of ["observed", ...path.map(id => "o" + id)]) opened.add(one);
    go({obs: id}, true);
    byId("ob-" + path[0])?.scrollIntoView({block: "start"});
  }
}

// One row a message: an exchange is an answer and its results.
const grouped = parts => [...Map.groupBy(parts.filter(part => part.node !== null), part => part.node)].map(([node, all]) => (
  {node, kind: all[0].kind, tokens: all.reduce((sum, part) => sum + part.tokens, 0), cut: all.some(part => part.cut)}));
