// What needs a decision, the plan, the runs, the budgets, and the ways to steer.
import {act, both, runPath, send} from "./actions.js";
import {cancelForm, cardOf} from "./ask.js";
import {el, fill, int, short, span, usd} from "./dom.js";
import {chosenStep, goTo, place, threadLink} from "./place.js";
import {agents, file, post} from "./service.js";
import {PLAN_MARKS, chip, isActive, stateOf} from "./words.js";

export class SidePane {
  constructor(thread) {
    this.thread = thread;
    this.boxes = Object.fromEntries(["questions", "plan", "runs", "gauges"].map(name => [name, el("div")]));
    this.drawn = {};
    this.agents = [];
    const {questions, plan, runs, gauges} = this.boxes;
    this.box = el("div.scroll", {id: "sscroll", tabindex: 0, role: "region", "aria-label": "Decide, plan and runs"}, questions, plan, runs, gauges, file ? null : this.controls());
    this.node = el("section.pane", {id: "side", "aria-label": "Plan, runs and budgets"}, this.box);
  }

  // A box is made again only if what it shows changed: what is typed or focused there stays.
  put(name, state, make) {
    const key = JSON.stringify(state);
    if (this.drawn[name] === key) return;
    this.drawn[name] = key;
    fill(this.boxes[name], make());
  }

  draw() {
    const {summary, run} = this.thread, open = summary.questions.filter(q => q.status === "open");
    this.put("questions", open.map(q => q.id), () => open.map(q => el("section.card", {"aria-label": "Waits for you"}, cardOf(q))));
    this.put("plan", summary.plan, () => this.plan(summary.plan));
    this.put("runs", summary.tree, () => this.runs(summary.tree));
    const i = chosenStep(this.thread.count);
    this.put("gauges", [i, summary.budgets, summary.memory, this.thread.steps.raw[i]], () => this.gauges(summary, i));
    if (!file) this.drawControls(run, i);
  }

  plan(plan) {
    if (!plan) return el("section.card", el("h2", "Plan"), el("p.small.dim", "This run has no plan."));
    return el("section.card", el("h2", "Plan"), el("p.small.dim", {dir: "auto"}, plan.goal), el("ol.plan", plan.items.map(item => el(`li.${item.status}`,
      el("span", {"aria-hidden": "true"}, PLAN_MARKS[item.status] || "○"), el("span", {dir: "auto"}, item.description, el("span.vh", `, ${item.status.replace("_", " ")}`), item.result && item.status === "failed" ? el("span.small.dim", ` ${item.result}`) : null)))));
  }

  runs(tree) {
    const level = new Map();
    const items = tree.map(run => {
      level.set(run.run, (level.get(run.parent) || 0) + 1);
      const own = run.thread === this.thread.id, time = (run.finished_at || run.updated_at) - run.created_at;
      return el("div", {role: "treeitem", "aria-level": level.get(run.run), "aria-selected": String(own), tabindex: own ? 0 : -1, css: {"margin-inline-start": 16 * (level.get(run.run) - 1) + "px"},
        onclick: () => own || goTo(threadLink(run.thread)), onkeydown: event => this.treeKey(event, run)},
      el("span.clip", {title: run.task_key || run.agent}, el("bdi", `${run.agent} ${run.task_key || ""}`)), chip(run),
      el("span.small.dim.num", `${int(run.steps)} steps · ${span(time)}`), el("span.small.dim.num", `${short(run.tokens)} · ${usd(run.cost)}`),
      run.detail && run.status === "failed" ? el("span.small.dim.both", {dir: "auto"}, run.detail) : null);
    });
    if (!items.some(item => item.tabIndex === 0) && items[0]) items[0].tabIndex = 0;
    return el("section.card", el("h2", "Runs"), items.length ? el("div.tree", {role: "tree", "aria-label": "Run tree"}, items) : el("p.small.dim", "No run has worked on this thread."));
  }

  treeKey(event, run) {
    const {key, currentTarget: item} = event;
    const to = key === "ArrowDown" ? item.nextElementSibling : key === "ArrowUp" ? item.previousElementSibling : null;
    if (key === "Enter" && run.thread !== this.thread.id) goTo(threadLink(run.thread));
    if (key !== "Enter" && key !== "ArrowDown" && key !== "ArrowUp") return;
    event.preventDefault();
    event.stopPropagation();
    if (to) to.focus();
  }

  gauges({budgets, memory, window}, i) {
    const {steps} = this.thread, limits = budgets ? [["Steps", budgets.steps, int], ["Money", budgets.cost, usd], ["Tokens", budgets.tokens, short]] : [];
    return el("section.card", budgets && [el("h2", "Budgets of the tree"), limits.map(([name, [used, most], show]) => gauge(name, used, most, show)), el("p.small.dim.num", `Worked ${span(budgets.worked)}`)],
      el("h2", `Prompt at step ${int(i + 1)}`), gauge("Context window", this.thread.prompt(i), window, int), memory.on ? [gauge("Raw messages, observed at T", Math.max(0, steps.raw[i]), memory.observe_at, int), gauge("Observations, condensed at R", Math.max(0, steps.observed[i]) + Math.max(0, steps.constraints[i]), memory.reflect_at, int)]
        : el("p.small.dim", "Observational memory is off."));
  }

  controls() {
    this.text = el("textarea", {id: "steer", rows: 2, placeholder: "Read at its next step", onkeydown: event => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.say();
    }});
    this.sayButton = el("button", {onclick: () => this.say()});
    agents().then(names => { this.agents = names; this.draw(); }, () => {});
    this.pauseButton = el("button", {onclick: () => this.act("pause", "It pauses at the next step")}, "Pause");
    this.resumeButton = el("button", {onclick: () => this.act("resume", "Resumed")}, "Resume");
    this.forkButton = el("button", {onclick: () => this.fork()}, "Fork");
    this.editButton = el("button", {onclick: () => this.edit()}, "Edit…");
    this.cancelButton = el("button.bad", {onclick: () => cancelForm(this.thread.run, this.thread.summary.tree.filter(one => one.parent && isActive(one)), this.extra)}, "Cancel…");
    this.all = [this.text, this.sayButton, this.pauseButton, this.resumeButton, this.forkButton, this.editButton, this.cancelButton];
    this.extra = el("div.grid");
    return el("section.card", el("h2", "Steer"), el("label.vh", {for: "steer"}, "Tell the run something"), this.text,
      el("div.row.wrap", this.sayButton, this.pauseButton, this.resumeButton, this.forkButton, this.editButton, this.cancelButton), this.extra);
  }

  drawControls(run, i) {
    const state = run ? stateOf(run) : "none", active = run && isActive(run);
    for (const control of [this.text, this.sayButton]) control.hidden = !active && !this.agents.length;
    this.text.placeholder = active ? "Read at its next step" : "The next message of the thread";
    fill(this.sayButton, active ? "Tell it" : "Continue");
    this.cancelButton.hidden = !active;
    this.pauseButton.hidden = !["queued", "running"].includes(state);
    const waits = this.thread.summary.questions.some(q => q.status === "open");
    this.resumeButton.hidden = !["paused", "interrupted"].includes(state) && (state !== "waiting" || waits);
    this.forkButton.textContent = `Fork from step ${int(i + 1)}`;
    this.forkButton.hidden = Boolean(active);
    this.editButton.hidden = active || !this.agents.length || this.edited() === null;
  }

  // Controls are off while the service cannot be reached.
  enable(on) { for (const control of this.all || []) control.disabled = !on; this.box.querySelectorAll(".need button").forEach(one => { if (!on) one.disabled = true; else if (!one.dataset.whole) one.disabled = false; }); }

  act(verb, done, body = {}) { return send(this.all, runPath(this.thread.run.run, verb), body, done); }

  async say() {
    const text = this.text.value.trim();
    if (!text) return;
    const {run} = this.thread, done = run && isActive(run) ? await this.act("steer", "The run reads it at its next step", {text})
      : await act(this.all, () => this.start(text), "Started");
    if (done) this.text.value = "";
  }

  // By the agent that worked here, if the service has it; else by its first one.
  start(task) {
    const agent = this.thread.run?.agent;
    return post("runs", {task, thread_id: this.thread.id, agent: this.agents.includes(agent) ? agent : null});
  }

  move(verb, node) { return post(`threads/${encodeURIComponent(this.thread.id)}/${verb}`, {node_id: node}); }

  async fork() {
    const {count, steps} = this.thread, i = chosenStep(count);
    if (await act(this.all, () => this.move("fork", steps.node[i]), `The thread continues from step ${i + 1}`)) goTo(threadLink(this.thread.id));
  }

  async replace(node, text) {
    const started = await act(this.all, () => both(() => this.move("edit", node), () => this.start(text),
      "The thread continues from before the message, but nothing was started."), "Edited");
    if (started) goTo(threadLink(this.thread.id));
  }

  // The user's own message that is selected; null if another is, or none.
  edited() { const at = this.thread.position(place.msg ?? -1); return at >= 0 && this.thread.nodes.role[at] === 0 ? this.thread.node(at) || null : null; }

  edit() {
    const node = this.edited(), text = el("textarea", {rows: 4, "aria-label": "The message as it should have been"});
    text.value = node.text;
    fill(this.extra, el("p.small", `Begins a new branch before #${node.seq}; this one stays.`), text, el("div.row",
      el("button.primary", {onclick: () => this.replace(node.seq, text.value)}, "Continue from here"), el("button.plain", {onclick: () => fill(this.extra)}, "Back")));
    text.focus();
  }
}

function gauge(name, used, most, show) {
  const text = most ? `${show(used)} of ${show(most)}` : `${show(used)}, no limit`;
  return el("div", el("div.row.small", el("span.grow", name), el("span.num", text)),
    most ? el("meter", {min: 0, max: 1, low: 0.8, high: 0.95, optimum: 0, value: Math.min(1, used / most), "aria-label": name, "aria-valuetext": text}) : null);
}
