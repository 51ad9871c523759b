// Home: what needs a person, what runs, what ended. And the hits of a search.
import {cardOf} from "./ask.js";
import {el, fill, int, percent, plural, short, template, usd, when} from "./dom.js";
import {place, threadLink} from "./place.js";
import {get, search} from "./service.js";
import {chip, stateOf} from "./words.js";

export class Home {
  constructor() {
    this.pages = [];
    this.node = template("home-view");
    [this.needs, , this.rows, {firstChild: this.more}] = this.node.firstElementChild.children;
    this.more.onclick = () => this.readMore();
  }

  async refresh() {
    this.data = await get("home?limit=50");
    this.draw();
  }

  async readMore() {
    this.more.disabled = true;
    try {
      const page = await get("home?limit=50&before=" + encodeURIComponent(this.next));
      this.pages.push(...page.recent);
      this.after = page.next;
      this.drawRows();
    } catch (error) { fill(this.more, `${error.message} Try again`); }
    this.more.disabled = false;
  }

  get next() { return this.after === undefined ? this.data.next : this.after; }

  draw() {
    const {needs, figures} = this.data, open = needs.map(q => q.id).join();
    if (open !== this.open) {
      const many = needs.length;
      fill(this.needs, el(many ? "h2" : "p.dim", {id: "h-need"}, many ? plural(many, "waits", "wait") + " for you" : "Nothing waits for you."), needs.map(q => cardOf(q, true)));
    }
    this.open = open;
    const {spent, unpriced, cached, prompt} = figures, shown = {...figures, spent: usd(spent) + (unpriced ? " and more" : ""), cached: percent(cached, prompt)};
    for (const box of this.node.querySelectorAll("[data-f]")) fill(box, shown[box.dataset.f]);
    this.drawRows();
  }

  drawRows() {
    const {needs, active, recent} = this.data, known = new Set(recent.map(run => run.run)), earlier = this.pages.filter(run => !known.has(run.run));
    const state = JSON.stringify([active, recent, earlier.length]);
    this.more.hidden = !this.next;
    if (state === this.state) return;
    this.state = state;
    const focused = document.activeElement.closest("[data-run]")?.dataset.run;
    const group = (name, runs) => {
      const table = template("some-runs");
      fill(table.caption, name);
      fill(table.tBodies[0], runs.map(line));
      return runs.length > 0 && table;
    };
    fill(this.rows, needs.length || active.length || recent.length ? [group("Active", active), group("Ended", [...recent, ...earlier])]
      : template("no-runs"));
    if (focused) this.rows.querySelector(`[data-run="${CSS.escape(focused)}"] a`)?.focus({preventScroll: true});
  }
}

function line(run) {
  const plan = run.plan;
  return el("tr.go", {"data-run": run.run}, el("td.k", el("a", {href: threadLink(run.thread)}, el("bdi", run.title || run.thread)),
    el("div.small.dim", el("bdi", run.agent), run.model && ` · ${run.model}`, run.children ? ` · ${plural(run.children, "sub-agent")}` : "")),
  el("td.k", chip(run), run.status !== "succeeded" && stateOf(run) !== "waiting" && run.detail && el("p.small.dim", run.detail)),
  el("td", plan ? [el("meter", {min: 0, max: Math.max(1, plan.total), value: plan.done, "aria-label": `Plan, ${plan.done} of ${plan.total} done`}), el("span.small.dim.num", `${plan.done} of ${plan.total} done`)] : el("span.dim.small", "no plan")),
  el("td.n", int(run.steps), el("div.small.dim", `of ${int(run.max_steps)}`)), el("td", spark(run.spark)),
  el("td.n", usd(run.cost), el("div.small.dim", `${short(run.tokens)} tokens`)), el("td.n", when(run.updated_at)));
}

function spark(values) {
  const top = Math.max(1, ...values), svg = template("spark"), across = 118 / Math.max(1, values.length - 1);
  svg.ariaLabel = `Prompts of at most ${int(top)} tokens`;
  svg.firstChild.setAttribute("points", values.map((v, i) => `${(i * across + 1).toFixed(1)},${(22 - 20 * Math.max(0, v) / top).toFixed(1)}`).join(" "));
  return values.length > 0 && svg;
}

export class Found {
  constructor() { this.node = el("div.home", {tabindex: 0, role: "region", "aria-label": "Found"}, this.list = el("div")); }

  async refresh() {
    if (this.text === place.q) return;
    const {hits} = await search(place.q, place.thread);
    this.text = place.q;
    fill(this.list, el("h2", `“${place.q}”: ${plural(hits.length, "message")}`), hits.length ? el("ul.grid", hits.map(hit => el("li", el("a", {href: threadLink(hit.thread_id, {msg: hit.node_id})},
      el("bdi", hit.title || hit.thread_id), ` #${hit.node_id}`), el("p.small.dim", hit.text)))) : el("p.dim", "No message has them."));
  }
}
