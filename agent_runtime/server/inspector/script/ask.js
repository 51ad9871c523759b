// A question to a person: exactly what would run, all of it, and the ways to answer.
import {answerTo, act, runPath} from "./actions.js";
import {block, button, clock, el, enable, fill, int, span, when} from "./dom.js";
import {threadLink} from "./place.js";
import {file, getText, post} from "./service.js";

const cards = new Map();

// The card of a question: the same element while the question is the same, so that what was typed stays.
export function cardOf(question, link) {
  const key = question.id + question.digest + Boolean(link), known = cards.get(key);
  if (known) return known;
  if (cards.size > 200) cards.clear();
  const card = el("article.need", {"aria-label": titleOf(question)}, el("div.row.wrap", el("b", titleOf(question)), el("span.small.dim", asked(question))),
    el("p.small", question.why), question.kind === "approval" && el("p.small", question.text.replace(`May the agent call ${question.tool}?`, "")),
    runsOnAnswer(question) && question.arguments.map(argument => shownOf(question, argument)), !file && formOf(question),
    link && el("p", el("a", {href: threadLink(question.root_thread || question.thread, {pane: "side"})}, "See what led here")));
  enable(card.querySelectorAll("[data-whole]"), true);
  cards.set(key, card);
  return card;
}

const runsOnAnswer = question => question.kind === "approval" || question.kind === "interrupted";

const titleOf = question => question.kind === "approval" ? `Allow ${question.tool}?` : question.kind === "interrupted" ? `What became of ${question.tool}?` : question.text;

function asked(question) {
  const left = question.expires_at - Date.now() / 1000;
  return `${question.agent} asked ${clock(question.asked_at)}, ${left > 0 ? `expires in ${span(left)}` : `expired ${when(question.expires_at)}`}`;
}

function shownOf(question, argument) {
  const whole = `${int(argument.chars)} characters, all of them`;
  const size = el("span", argument.more ? `the first ${int(argument.text.length)} of ${int(argument.chars)} characters` : whole), text = block(argument.name, argument.text, argument.more ? ".cmd.unread" : ".cmd");
  // What is too long to come with the question is read before it can be allowed.
  const rest = argument.more && question.node && question.index !== null && button("Show all of it: it can be allowed then", async () => {
    rest.disabled = true;
    try {
      const all = JSON.parse(await getText(`threads/${encodeURIComponent(question.thread)}/nodes/${question.node}/calls/${question.index}?part=arguments`))[argument.name];
      fill(text, typeof all === "string" ? all : JSON.stringify(all, null, 2));
      fill(size, whole);
      text.classList.remove("unread");
      enable(rest.closest(".need").querySelectorAll("[data-whole]"), true);
      rest.remove();
    } catch (error) {
      fill(rest, `${error.message} Try again`);
      rest.disabled = false;
    }
  }, ".link.small");
  return el("div", el("div.small.dim.row.wrap", el("span", argument.name + " ·"), size), text, rest);
}

function formOf(question) {
  const more = el("div.grid.more", {hidden: true}), form = el("form.grid", {onsubmit: event => event.preventDefault()});
  const answer = (value, done) => answerTo([...form.querySelectorAll("button")], question, value, done);
  // A second step inside the card: `ask` is what to fill in, `then` sends it.
  const open = (ask, name, then, classes) => {
    fill(more, ask, el("div.row", button(name, then, classes), button("Back", () => { more.hidden = true; }, ".plain")));
    more.hidden = false;
    (more.querySelector("textarea") || more.querySelector("button")).focus();
  };
  fill(form, el("div.row.wrap", CONTROLS[question.kind](question, answer, open, form)), more);
  return form;
}

// Only once everything that would run has been shown.
const WHOLE = {"data-whole": true};

const field = name => el("textarea", {rows: 2, "aria-label": name, placeholder: name});

// Allowed, or refused for a reason that the model reads.
const decided = (allow, reason = "", remember = false) => ({allow, reason, remember});
const refused = (answer, open, name, ask, done) => {
  const reason = field(ask);
  return button(name + "…", () => open(reason, name, () => answer(decided(false, reason.value), done), ".bad"));
};

function choices(question, answer, open, form) {
  const type = question.kind === "multiple" ? "checkbox" : "radio";
  return [el("fieldset.grid", el("legend.vh", question.text), question.choices.map(value => el("label.row", el("input", {type, name: "choice-" + question.id, value}), el("bdi", value)))),
    button("Answer", () => {
      const inputs = [...form.querySelectorAll("input")];
      answer({choices: question.choices.filter((_, k) => inputs[k].checked)}, "Answered");
    }, ".primary")];
}

function approval(question, answer, open) {
  const pattern = Object.entries(question.default_pattern || {}).map(([name, value]) => `${name} like ${value}`).join(", ");
  return [button("Allow once", () => answer(decided(true), "Allowed once"), ".primary", WHOLE),
    refused(answer, open, "Refuse", "Why not? The model reads it.", "Refused"),
    button(`Allow every ${question.tool} here…`, () => open(el("p.small", `For the rest of this thread, without asking: ${question.tool} with ${pattern || "any arguments"}.`),
      "Allow for this thread", () => answer(decided(true, "", true), "Allowed for this thread"), ""), "", WHOLE)];
}

const continues = (question, answer, open) => [button("Continue", () => answer(decided(true), "It continues"), ".primary"), refused(answer, open, "Stop", "Why stop?", "Stopped")];

function interrupted(question, answer, open) {
  const value = field("Its result, as the model reads it"), reason = field("What went wrong");
  return [button("Run it again", () => answer({action: "rerun"}, "It runs again"), "", WHOLE),
    button("It was done…", () => open(value, "Take this result", () => answer({action: "accept", value: value.value}, "Result taken"), ".primary")),
    button("It failed…", () => open(reason, "Count as failed", () => answer({action: "fail", reason: reason.value}, "Counted as failed"), ".bad"))];
}

function written(question, answer) {
  const text = field("Your answer");
  return [text, button("Answer", () => answer({text: text.value}, "Answered"), ".primary")];
}

const CONTROLS = {approval, continue: continues, interrupted, single: choices, multiple: choices, text: written};

// Cancelling asks first, and names what is under way.
export function cancelForm(run, running, box) {
  const names = running.map(one => one.task_key || one.agent).join(", ");
  const confirm = button("Cancel the run", async () => {
    if (await act([confirm], () => post(runPath(run.run, "cancel"), {}), "Cancelled")) fill(box);
  }, ".bad");
  fill(box, el("p.small", `Ends ${run.agent}${names ? ` and, under it, ${names}` : ""}. A call that is under way is stopped; everything recorded stays.`),
    el("div.row", confirm, button("Keep it running", () => fill(box), ".plain")));
  confirm.focus();
}
