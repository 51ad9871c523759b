// How the service's values are called on the page.
import {el} from "./dom.js";

// Other names are read as they are: no_progress is "No progress".
const STATES = {waiting: "Waits for you", ready: "Waits to be resumed", below: "Waits for sub-agents"};
const REASONS = {max_steps: "Out of steps", budget: "Out of budget", timeout: "Out of time", unavailable: "Model unavailable", unsupported: "Not supported",
  refusal: "The model refused", length: "Answer too long"};
const named = (name, names) => names[name] || name[0].toUpperCase() + name.slice(1).replaceAll("_", " ");
const CAUSES = {start: "the thread begins", observed: "observations were ready", tokens: "raw messages reached T",
  overflow: "the window was full", late: "the Observer is behind", price: "rewriting had become cheaper than carrying",
  idle: "the cache had gone cold", agent: "the agent changed", messages: "fewer messages are kept",
  note: "the state note changed", model: "the model changed", compact: "it was asked for"};

export const BANDS = ["system", "observed", "constraints", "state", "raw"];
export const NAMES = {system: "System and tools", observed: "Observations", constraints: "Constraints",
  state: "State note", raw: "Raw messages"};
export const MARKS = {critical: "‼", important: "!", info: "·", done: "✓"};
export const PLAN_MARKS = {completed: "✓", in_progress: "▸", failed: "✕", skipped: "–"};
export const FLAG = {error: 1, question: 2, steered: 4, delegated: 8};

export const causeOf = activation => CAUSES[activation.cause] || activation.cause;
export const hasFailed = call => call.outcome !== null && call.outcome !== "ok";
export const isActive = run => ["queued", "running", "suspended"].includes(run.status);
export const isMoving = run => run?.status === "queued" || run?.status === "running";

// A running run whose process is gone is interrupted; a suspended one was paused, or waits for a person,
// for runs below it, or only to be resumed, once what it asked is answered or has expired.
export function stateOf(run) {
  if (run.status === "running") return run.alive === false ? "interrupted" : "running";
  if (run.status !== "suspended") return run.status;
  const way = run.way_on === "answer" && "waiting";
  return {awaiting_user: way || "ready", awaiting_children: way || "below", paused: "paused"}[run.stop_reason] || "interrupted";
}

export function chip(run) {
  const state = stateOf(run);
  return el("span", {class: "chip " + state}, state === "failed" && run.stop_reason ? named(run.stop_reason, REASONS) : named(state, STATES));
}

const SUBJECTS = ["path", "command", "pattern", "url", "query", "task_key", "action", "question", "name"];
export function subjectOf(call) {
  const found = SUBJECTS.map(name => call.arguments.find(a => a.name === name)).find(a => a && a.text) || call.arguments[0];
  return found ? found.text.slice(0, 200) : "";
}

export function labelOf(node) {
  const calls = node.calls.map(call => call.tool + " " + subjectOf(call)).join(", ");
  return (node.text.slice(0, calls ? 60 : 120) + " " + calls).trim() || "(empty)";
}

export function answerOf(question) {
  const {answer, kind} = question;
  if (question.status !== "answered") return question.status === "expired" ? "Nobody answered in time" : "Withdrawn";
  if (answer.choices) return "You answered: " + answer.choices.join(", ");
  if (answer.text != null) return "You answered: " + answer.text;
  if (kind === "interrupted") return "You decided what becomes of the call";
  const said = answer.allow ? (answer.remember ? "You allowed it for this thread" : "You allowed it once") : "You refused";
  return said + (answer.reason ? `: “${answer.reason}”` : "");
}
