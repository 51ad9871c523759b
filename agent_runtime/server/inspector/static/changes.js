// What an activation left out of the prompt, and how two prompts differ.
import {el, int, plural, usd} from "./dom.js";
import {deltaLink, foldHead, linesOf, missing} from "./fold.js";
import {go, opened, place} from "./place.js";
import {WEIGHT, causeOf, labelOf} from "./words.js";

const heading = text => el("h3.pad", text);

export function leftOut(thread, i) {
  const a = thread.activationAt(i), old = a && thread.activations[a.index - 1];
  if (!old) return el("p.blank.dim", "Nothing had left the prompt at this step: the thread's first activation is in force.");
  const after = thread.steps.activation.indexOf(a.id), before = after - 1;
  const gone = thread.between(old.first || 0, (a.first ?? Infinity) - 1).filter(seq => a.first !== null && seq !== a.task);
  const replaced = old.observed.filter(id => !a.observed.includes(id)), heirs = new Map();
  for (const id of replaced) {
    const heir = a.observed.find(one => holds(thread, one, id)) || 0;
    heirs.set(heir, [...heirs.get(heir) || [], id]);
  }
  const details = thread.details(a.id), cuts = details && details.cuts ? Object.entries(details.cuts) : [];
  return [el("div.card", el("b", `Activation ${a.id}, because ${causeOf(a)}`), before >= 0 && after > 0 ? el("p.small.num", paid(thread, before, after)) : null,
    el("p.small", "Nothing is lost: the log keeps every message, and the model can open it again by recall.")),
  heading(`${plural(gone.length, "message")} left the prompt`),
  gone.map(seq => {
    const {by} = thread.whereAt(seq, Math.max(after, 0));
    return el("div.delta.gone", el("span", {"aria-hidden": "true"}, "−"), deltaLink(thread, seq, () => go({msg: seq})), el("span.num", by ? `→ o${by}` : ""));
  }),
  replaced.length ? heading(`${plural(replaced.length, "observation")} were condensed, or left out`) : null,
  [...heirs].map(([heir, ids]) => lost(thread, heir, ids)),
  cuts.length ? heading(`${plural(cuts.length, "older result")} are cut`) : null,
  cuts.map(([handle, chars]) => el("div.delta", el("span", "✂"), el("span.mono.clip", handle), el("span.num", `${int(chars)} characters shown`)))];
}

function paid(thread, before, after) {
  const {cached, cost} = thread.steps, fresh = cached[after] >= 0 ? ` Of the latter ${int(thread.prompt(after) - cached[after])} were not in the cache.` : "";
  return `Prompt ${int(thread.prompt(before))} → ${int(thread.prompt(after))} tokens.${fresh} The step cost ${usd(cost[after])}, the one before it ${usd(cost[before])}.`;
}

const holds = (thread, id, part) => id === part || (thread.observations.get(id)?.parts || []).some(one => holds(thread, one, part));

// The lines that a reflection changed or dropped, the weightiest first.
function lost(thread, heir, ids) {
  const key = `lost${heir}-${ids[0]}`, up = opened.has(key);
  return el("div.ob", foldHead(key, null, heir ? "o" + heir : "none", `stands for ${ids.map(id => "o" + id).join(", ")}`, ""), up && el("div.in", lostLines(thread, heir, ids)));
}

function lostLines(thread, heir, ids) {
  const all = (heir ? [heir, ...ids] : ids).map(id => thread.observation(id)), not = missing(...all);
  if (not) return not;
  const kept = new Set(heir ? all[0].lines.map(line => line.text) : []);
  const lines = (heir ? all.slice(1) : all).flatMap(one => one.lines.map(line => ({...line, node: 0, of: one.id}))), gone = lines.filter(line => !kept.has(line.text));
  gone.sort((x, y) => WEIGHT.indexOf(x.priority) - WEIGHT.indexOf(y.priority));
  return [el("p.small.dim", `${gone.length} of ${lines.length} lines do not stand there word for word`), linesOf(gone)];
}

export function compared(thread, i) {
  const other = Math.max(0, Math.min(thread.count, place.with ?? i) - 1);
  const [old, now] = [other, i].map(k => thread.partsAt(k)), not = missing(old, now);
  const input = el("input.short", {type: "number", min: 1, max: thread.count, value: other + 1, onchange: event => go({with: Math.max(1, Math.min(thread.count, +event.target.value || 1))}, true)});
  const before = thread.steps.activation.indexOf(thread.steps.activation[i]);
  const head = el("div.row.wrap.small", el("label.row", "Compared with step", input), before > 0 && el("button", {onclick: () => go({with: before}, true)}, "Last before this activation"));
  if (not) return el("div.card", head, not);
  let same = 0, tokens = 0;
  while (same < old.length && same < now.length && old[same].hash === now[same].hash) tokens += now[same++].tokens;
  const went = without(old.slice(same), now), came = without(now.slice(same), old);
  return [el("div.card", head, el("p.small.num", el("b", `The first ${same} of ${plural(now.length, "part")} are the same`),
    ` (${int(tokens)} tokens, what a cache can serve). ${came.length} came, ${went.length} went; ${int(thread.prompt(other))} → ${int(thread.prompt(i))} tokens.`)),
  same < now.length || same < old.length ? heading("From here on they differ") : heading("The two prompts are the same"),
  went.map(part => row(thread, part, "del", "−")), came.map(part => row(thread, part, "add", "+"))];
}

function without(parts, others) {
  const hashes = new Set(others.map(part => part.hash));
  return parts.filter(part => !hashes.has(part.hash));
}

function row(thread, part, kind, sign) {
  const node = part.node === null ? null : thread.nodeOf(part.node), call = node && part.call !== null ? node.calls[part.call] : null;
  const name = part.observation !== null ? `o${part.observation}` : part.node === null ? part.kind : `#${part.node} · ${call ? "result of " + call.tool : node ? labelOf(node) : part.kind}`;
  return el(`div.delta.${kind}`, el("span", sign), el("span.clip", el("bdi", name)), el("span.num", part.cut && "cut · ", int(part.tokens)));
}
