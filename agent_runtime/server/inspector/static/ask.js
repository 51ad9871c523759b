// A question to a person: exactly what would run, all of it, and the ways to answer.
import {answerTo, runPath, send} from "./actions.js";
import {clock, el, fill, int, span, when} from "./dom.js";
import {threadLink} from "./place.js";
import {file, getText} from "./service.js";

const cards = new Map();

// The card of a question: the same element while the question is the same, so that what was typed stays.
export function cardOf(question, link) {
  const key = question.id + question.digest + Boolean(link), known = cards.get(key);
  if (known) return known;
  if (cards.size > 200) cards.clear();
  const card = el("article.need", {"aria-label": titleOf(question)});
  fill(card, el("div.row.wrap", el("b", titleOf(question)), el("span.small.dim", asked(question))),
    question.why && el("p.small", {dir: "auto"}, question.why),
    question.kind === "approval" && el("p.small", {dir: "auto"}, question.text), whatRuns(question, card),
    file ? null : formOf(question),
    link && el("p", el("a", {href: threadLink(question.root_thread || question.thread, {step: null, pane: "side"})}, "See what led here")));
  cards.set(key, card);
  return card;
}

function titleOf(question) {
  if (question.kind === "approval") return `Allow ${question.tool}?`;
  if (question.kind === "interrupted") return `What became of ${question.tool}?`;
  return question.text;
}

function asked(question) {
  const left = question.expires_at - Date.now() / 1000;
  const expires = left > 0 ? `expires in ${span(left)}` : `expired ${when(question.expires_at)}`;
  return `${question.agent} asked ${clock(question.asked_at)}, ${expires}`;
}

function whatRuns(question, card) {
  if (question.kind !== "approval" && question.kind !== "interrupted") return null;
  return question.arguments.map(argument => {
    const size = el("span", argument.more ? `the first ${int(argument.text.length)} of ${int(argument.chars)} characters` : `${int(argument.chars)} characters, all of them`);
    const text = el("pre.cmd", {tabindex: 0, dir: "auto", "aria-label": argument.name}, argument.text);
    const box = el("div", el("div.small.dim.row.wrap", el("span", argument.name + " ·"), size), text);
    if (argument.more && question.node && question.index !== null) box.append(rest(question, argument, size, text, card));
    return box;
  });
}

// What is too long to come with the question is read before it can be allowed.
function rest(question, argument, size, text, card) {
  const button = el("button.link.small", {onclick: async () => {
    const path = `threads/${encodeURIComponent(question.thread)}/nodes/${question.node}/calls/${question.index}?part=arguments`;
    button.disabled = true;
    try {
      const all = JSON.parse(await getText(path))[argument.name];
      fill(text, typeof all === "string" ? all : JSON.stringify(all, null, 2));
      fill(size, `${int(argument.chars)} characters, all of them`);
      button.remove();
      if (!card.querySelector(".rest")) for (const allow of card.querySelectorAll("[data-whole]")) allow.disabled = false;
    } catch (error) {
      fill(button, `${error.message} Try again`);
      button.disabled = false;
    }
  }}, "Show all of it: it can be allowed then");
  button.classList.add("rest");
  return button;
}

function formOf(question) {
  const form = el("form.grid"), more = el("div.grid", {hidden: true});
  const answer = (value, done) => answerTo([...form.querySelectorAll("button")], question, value, done);
  // A second step inside the card: `ask` is what to fill in, `then` sends it.
  const open = (ask, name, then, cls) => {
    fill(more, ask, el("div.row", el("button", {type: "button", class: cls, onclick: then}, name),
      el("button", {type: "button", class: "plain", onclick: () => { more.hidden = true; }}, "Back")));
    more.hidden = false;
    (more.querySelector("textarea") || more.querySelector("button")).focus();
  };
  form.addEventListener("submit", event => event.preventDefault());
  fill(form, el("div.row.wrap", CONTROLS[question.kind](question, answer, open, form)), more);
  return form;
}

const field = name => {
  const box = el("textarea", {rows: 2, "aria-label": name, placeholder: name});
  return box;
};
const button = (name, then, props) => el("button", {type: "button", onclick: then, ...props}, name);

function choices(question, answer, open, form) {
  const many = question.kind === "multiple";
  const options = question.choices.map(choice => el("label.row",
    el("input", {type: many ? "checkbox" : "radio", name: "choice-" + question.id, value: choice}), el("bdi", choice)));
  return [el("fieldset.grid", el("legend.vh", question.text), options),
    button("Answer", () => {
      const inputs = [...form.querySelectorAll("input")];
      answer({choices: question.choices.filter((_, k) => inputs[k].checked)}, "Answered");
    }, {class: "primary"})];
}

function approval(question, answer, open) {
  const long = question.arguments.some(argument => argument.more), reason = field("Why not? The model reads it.");
  const pattern = Object.entries(question.default_pattern || {}).map(([name, value]) => `${name} like ${value}`).join(", ");
  return [button("Allow once", () => answer({allow: true, reason: "", remember: false}, "Allowed once"), {class: "primary", disabled: long, "data-whole": true}),
    button("Refuse…", () => open(reason, "Refuse", () => answer({allow: false, reason: reason.value, remember: false}, "Refused"), "bad")),
    button(`Allow every ${question.tool} here…`, () => open(
      el("p.small", {dir: "auto"}, `For the rest of this thread, without asking: ${question.tool} ${pattern ? "with " + pattern : "with any arguments"}.`),
      "Allow for this thread", () => answer({allow: true, reason: "", remember: true}, "Allowed for this thread"), ""), {disabled: long, "data-whole": true})];
}

function continues(question, answer, open) {
  const reason = field("Why stop?");
  return [button("Continue", () => answer({allow: true, reason: "", remember: false}, "It continues"), {class: "primary"}),
    button("Stop…", () => open(reason, "Stop", () => answer({allow: false, reason: reason.value, remember: false}, "Stopped"), "bad"))];
}

function interrupted(question, answer, open) {
  const value = field("Its result, as the model reads it"), reason = field("What went wrong");
  return [button("Run it again", () => answer({action: "rerun"}, "It runs again"), {disabled: question.arguments.some(a => a.more), "data-whole": true}),
    button("It was done…", () => open(value, "Take this result", () => answer({action: "accept", value: value.value}, "Result taken"), "primary")),
    button("It failed…", () => open(reason, "Count as failed", () => answer({action: "fail", reason: reason.value}, "Counted as failed"), "bad"))];
}

function written(question, answer) {
  const text = field("Your answer");
  return [text, button("Answer", () => answer({text: text.value}, "Answered"), {class: "primary"})];
}

const CONTROLS = {approval, continue: continues, interrupted, single: choices, multiple: choices, text: written};

// Cancelling asks first, and names what is under way.
export function cancelForm(run, running, box) {
  const names = running.map(one => one.task_key || one.agent).join(", ");
  const confirm = button("Cancel the run", async () => {
    if (await send([confirm], runPath(run.run, "cancel"), {}, "Cancelled")) fill(box);
  }, {class: "bad"});
  fill(box, el("p.small", `Ends ${run.agent}${names ? ` and, under it, ${names}` : ""}. A call that is under way is stopped; everything recorded stays.`),
    el("div.row", confirm, button("Keep it running", () => fill(box), {class: "plain"})));
  confirm.focus();
}
