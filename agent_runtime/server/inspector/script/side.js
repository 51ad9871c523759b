// What needs a decision, the plan, the runs, the budgets, and the ways to steer.
import {act, both, runPath} from "./actions.js";
import {cancelForm, cardOf} from "./ask.js";
import {button, byId, el, enable, fill, int, notice, short, span, usd} from "./dom.js";
import {chosenStep, goTo, place, threadLink} from "./place.js";
import {agents, file, getText, post} from "./service.js";
import {PLAN_MARKS, chip, isActive, isMoving, stateOf} from "./words.js";

export class SidePane {
  // Takes the pane that stands in the document.
  constructor(thread) {
    this.thread = thread;
    this.drawn = {};
    this.agents = [];
    this.box = byId("sscroll");
    [this.text, this.extra] = ["steer", "extra"].map(byId);
    const does = {
      say: () => this.say(), edit: () => this.edit().catch(error => notice(error.told, "bad")), fork: () => this.fork(),
      pause: () => this.act("pause", "It pauses at the next step"), resume: () => this.act("resume", "Resumed"),
      cancel: () => cancelForm(this.thread.run, this.thread.summary.tree.filter(one => one.parent && isActive(one)), this.extra),
    };
    this.buttons = Object.fromEntries(Object.entries(does).map(([name, onclick]) => [name, Object.assign(byId("do-" + name), {onclick})]));
    this.all = [this.text, ...Object.values(this.buttons)];
    this.text.onkeydown = event => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.say(); };
    if (file) this.text.closest("section").remove();
    else agents().then(names => { this.agents = names; this.draw(); }, () => {});
  }

  // A box is made again only if what it shows changed: what is typed or focused there stays.
  put(name, state, make) {
    const key = JSON.stringify(state);
    if (this.drawn[name] !== key) fill(byId(name), make());
    this.drawn[name] = key;
  }

  draw() {
    const {summary, run, steps, count} = this.thread, open = summary.questions.filter(q => q.status === "open"), i = chosenStep(count);
    this.put("questions", open.map(q => q.id), () => open.map(q => el("section.card", {"aria-label": "Waits for you"}, cardOf(q))));
    this.put("plan", summary.plan, () => [el("h2", "Plan"), summary.plan ? planOf(summary.plan) : el("p.small.dim", "This run has no plan.")]);
    this.put("runs", summary.tree, () => [el("h2", "Runs"), summary.tree.length ? this.runs(summary.tree) : el("p.small.dim", "No run has worked on this thread.")]);
    this.put("gauges", [i, summary.budgets, summary.memory, steps.raw[i]], () => this.gauges(summary, i));
    const active = run && isActive(run), state = run && stateOf(run), {say, fork, edit, pause, resume, cancel} = this.buttons;
    this.text.hidden = say.hidden = !active && !this.agents.length;
    this.text.placeholder = active ? "Read at its next step" : "The next message of the thread";
    fill(say, active ? "Tell it" : "Continue");
    fill(fork, `Fork from step ${int(i + 1)}`);
    cancel.hidden = !active;
    pause.hidden = !isMoving({status: state});
    resume.parentNode.hidden = file || !["paused", "interrupted", "ready"].includes(state);
    fork.hidden = active || !count;
    edit.hidden = active || !this.agents.length || !this.edited();
  }

  runs(tree) {
    const level = new Map(), items = tree.map(run => {
      level.set(run.run, (level.get(run.parent) || 0) + 1);
      const own = run.thread === this.thread.id, open = () => own || goTo(threadLink(run.thread));
      return el("div", {role: "treeitem", "aria-level": level.get(run.run), "aria-selected": String(own), tabindex: own ? 0 : -1, css: {"margin-inline-start": 16 * (level.get(run.run) - 1) + "px"},
        onclick: open, onkeydown: event => {
          const {key, currentTarget: item} = event;
          if (!["Enter", "ArrowDown", "ArrowUp"].includes(key)) return;
          event.preventDefault();
          event.stopPropagation();
          if (key === "Enter") open(); else (key === "ArrowDown" ? item.nextElementSibling : item.previousElementSibling)?.focus();
        }},
      el("span.clip", {title: run.task_key || run.agent}, el("bdi", `${run.agent} ${run.task_key || ""}`)), chip(run),
      el("span.small.dim.num", `${int(run.steps)} steps · ${span((run.finished_at || run.updated_at) - run.created_at)}`), el("span.small.dim.num", `${short(run.tokens)} · ${usd(run.cost)}`),
      run.status === "failed" && el("p.small.dim.both", run.detail));
    });
    if (!items.some(item => item.tabIndex === 0)) items[0].tabIndex = 0;
    return el("div.tree", {role: "tree", "aria-label": "Run tree"}, items);
  }

  gauges({budgets, memory, window}, i) {
    const at = Object.fromEntries(["raw", "observed", "constraints"].map(name => [name, Math.max(0, this.thread.steps[name][i])]));
    return [budgets && [el("h2", "Budgets of the tree"), gauge("Steps", ...budgets.steps, int), gauge("Money", ...budgets.cost, usd), gauge("Tokens", ...budgets.tokens, short), el("p.small.dim.num", `Worked ${span(budgets.worked)}`)],
      i >= 0 && [el("h2", `Prompt at step ${int(i + 1)}`), gauge("Context window", this.thread.prompt(i), window, int),
        memory.on ? [gauge("Raw messages, observed at T", at.raw, memory.observe_at, int), gauge("Observations, condensed at R", at.observed + at.constraints, memory.reflect_at, int)] : el("p.small.dim", "Observational memory is off.")]];
  }

  // Controls are off while the service cannot be reached.
  enable(on) { enable([...this.all, ...this.box.querySelectorAll(".need button")], on); }

  act(verb, done, body = {}) { return act(this.all, () => post(runPath(this.thread.run.run, verb), body), done); }

  async say() {
    const text = this.text.value.trim(), {run} = this.thread;
    if (text && (run && isActive(run) ? await this.act("steer", "The run reads it at its next step", {text}) : await act(this.all, () => this.start(text), "Started"))) this.text.value = "";
  }

  // By the agent that worked here, if the service has it; else by its first one.
  start(task) {
    const agent = this.thread.run?.agent;
    return post("runs", {task, thread_id: this.thread.id, agent: this.agents.includes(agent) ? agent : null});
  }

  // To the newest step of the branch, which another act made.
  async moved(work, done) { if (await act(this.all, work, done)) goTo(threadLink(this.thread.id)); }
  move(verb, node_id) { return post(`threads/${encodeURIComponent(this.thread.id)}/${verb}`, {node_id}); }

  fork() {
    const {count, steps} = this.thread, i = chosenStep(count);
    return this.moved(() => this.move("fork", steps.node[i]), `The thread continues from step ${i + 1}`);
  }

  // The user's own message that is selected; nothing if another is, or none.
  edited() {
    const at = this.thread.position(place.msg ?? -1);
    return at >= 0 && this.thread.nodes.role[at] === 0 && this.thread.node(at);
  }

  // What stands in the log may be only the beginning of a long message.
  async edit() {
    const node = this.edited(), text = el("textarea", {rows: 4, "aria-label": "The message as it should have been"});
    text.value = node.chars > node.text.length ? await getText(this.thread.path(`nodes/${node.seq}/text`)) : node.text;
    const replace = () => this.moved(() => both(() => this.move("edit", node.seq), () => this.start(text.value), "The thread continues from before the message, but nothing was started."), "Edited");
    fill(this.extra, el("p.small", `Begins a new branch before #${node.seq}; this one stays.`), text, el("div.row", button("Continue from here", replace, ".primary"), button("Back", () => fill(this.extra), ".plain")));
    text.focus();
  }
}

const planOf = plan => [el("p.small.dim", plan.goal), el("ol.plan", plan.items.map(item => el("li." + item.status, el("span", {"aria-hidden": "true"}, PLAN_MARKS[item.status] || "○"),
  el("p", item.description, el("span.vh", `, ${item.status.replace("_", " ")}`), item.status === "failed" && el("span.small.dim", ` ${item.result}`)))))];

function gauge(name, used, most, show) {
  const text = most ? `${show(used)} of ${show(most)}` : `${show(used)}, no limit`;
  return el("div", el("div.row.small", el("span.grow", name), el("span.num", text)),
    most > 0 && el("meter", {min: 0, max: 1, low: 0.8, high: 0.95, optimum: 0, value: Math.min(1, used / most), "aria-label": name, "aria-valuetext": text}));
}
