// Home: what needs a person, what runs, what ended. And the hits of a search.
import {cardOf} from "./ask.js";
import {el, fill, int, percent, plural, short, usd, when} from "./dom.js";
import {place, threadLink} from "./place.js";
import {get, search} from "./service.js";
import {chip} from "./words.js";

export class Home {
  constructor() {
    this.pages = [];
    this.needs = el("section.grid", {"aria-labelledby": "h-need"});
    this.figures = el("section.figs", {"aria-label": "Today"});
    this.rows = el("section");
    this.more = el("button", {hidden: true, onclick: () => this.readMore()}, "Earlier runs");
    this.node = el("div.home", {tabindex: 0, role: "region", "aria-label": "Threads"}, el("div", this.needs, this.figures, this.rows, el("p", this.more)));
  }

  async refresh() {
    this.data = await get("home?limit=50");
    this.draw();
  }

  async readMore() {
    const next = this.next;
    this.more.disabled = true;
    try {
      const page = await get("home?limit=50&before=" + encodeURIComponent(next));
      this.pages.push(...page.recent);
      this.after = page.next;
      this.drawRows();
    } catch (error) { fill(this.more, `${error.message} Try again`); }
    this.more.disabled = false;
  }

  get next() { return this.after === undefined ? this.data.next : this.after; }

  draw() {
    const {needs, active, recent, figures} = this.data;
    this.empty = !needs.length && !active.length && !recent.length;
    const open = needs.map(q => q.id).join();
    if (open !== this.open) {
      fill(this.needs, needs.length ? [el("h2", {id: "h-need"}, needs.length === 1 ? "1 waits for you" : `${needs.length} wait for you`), needs.map(q => cardOf(q, true))]
        : el("p.dim", {id: "h-need"}, "Nothing waits for you."));
    }
    this.open = open;
    const spent = usd(figures.spent) + (figures.unpriced ? " and more" : "");
    fill(this.figures, [["Running", int(figures.running)], ["Waiting", int(figures.waiting)], ["Failed", int(figures.failed)], ["Spent today", spent],
      ["Read from cache", percent(figures.cached, figures.prompt)]].map(([name, figure]) => el("div", el("b", figure), el("span.dim.small", name))));
    this.drawRows();
  }

  drawRows() {
    const {active, recent} = this.data, known = new Set(recent.map(run => run.run)), earlier = this.pages.filter(run => !known.has(run.run));
    const state = JSON.stringify([active, recent, earlier.length]);
    this.more.hidden = !this.next;
    if (state === this.state) return;
    this.state = state;
    const head = name => el("th", {scope: "col"}, name), figure = name => el("th.n", {scope: "col"}, name), focused = document.activeElement.closest?.("[data-run]")?.dataset.run;
    const group = (name, runs) => runs.length ? el("table.tl", el("caption", name), el("thead", el("tr", head("Thread"), head("State"), head("Progress"), figure("Steps"), head("Prompt size"), figure("Cost"), figure("Last change"))), el("tbody", runs.map(line))) : null;
    fill(this.rows, this.empty ? el("div.blank", el("h2", "No runs yet"), el("p.dim", "A run that begins shows up here by itself."), el("code.cmd", 'agent-runtime run "Survey this folder" --workspace .'))
      : [group("Active", active), group("Ended", [...recent, ...earlier])]);
    if (focused) this.rows.querySelector(`[data-run="${CSS.escape(focused)}"] a`)?.focus({preventScroll: true});
  }
}

function line(run) {
  const plan = run.plan, failed = run.detail && run.status !== "succeeded";
  return el("tr.go", {"data-run": run.run}, el("td.k", el("a", {href: threadLink(run.thread)}, el("bdi", run.title || run.thread)),
    el("div.small.dim", el("bdi", run.agent), run.model && ` · ${run.model}`, run.children ? ` · ${plural(run.children, "sub-agent")}` : "")),
  el("td.k", chip(run), failed ? el("div.small.dim", {dir: "auto"}, run.detail) : null),
  el("td", plan ? [el("meter", {min: 0, max: Math.max(1, plan.total), value: plan.done, "aria-label": `Plan, ${plan.done} of ${plan.total} done`}), el("span.small.dim.num", `${plan.done} of ${plan.total} done`)] : el("span.dim.small", "no plan")),
  el("td.n", int(run.steps), el("div.small.dim", `of ${int(run.max_steps)}`)), el("td", spark(run.spark)),
  el("td.n", usd(run.cost), el("div.small.dim", `${short(run.tokens)} tokens`)), el("td.n", when(run.updated_at)));
}

function spark(values) {
  if (!values.length) return null;
  const make = (name, attributes) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };
  const top = Math.max(1, ...values), svg = make("svg", {viewBox: "0 0 120 24", class: "spark", role: "img", "aria-label": `Prompts of at most ${int(top)} tokens`});
  const points = values.map((v, i) => `${(i * 118 / Math.max(1, values.length - 1) + 1).toFixed(1)},${(22 - 20 * Math.max(0, v) / top).toFixed(1)}`);
  svg.append(make("polyline", {points: points.join(" "), fill: "none", stroke: "currentColor", "stroke-width": "1.3"}));
  return svg;
}

export class Found {
  constructor() {
    this.node = el("div.home", {tabindex: 0, role: "region", "aria-label": "Found"}, this.list = el("div"));
  }

  async refresh() {
    if (this.text === place.q) return;
    const {hits} = await search(place.q, place.thread);
    this.text = place.q;
    fill(this.list, el("h2", `“${place.q}”: ${plural(hits.length, "message")}`), hits.length ? el("ul.grid", hits.map(hit => el("li", el("a", {href: threadLink(hit.thread_id, {msg: hit.node_id})},
      el("bdi", hit.title || hit.thread_id), ` #${hit.node_id}`), el("div.small.dim", {dir: "auto"}, hit.text)))) : el("p.dim", "No message has these words."));
  }
}
