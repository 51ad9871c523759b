// What an activation left out of the prompt, and how two prompts differ.
import {button, el, int, plural, usd} from "./dom.js";
import {foldHead, linesOf, messageLink, missing} from "./fold.js";
import {go, opened, place} from "./place.js";
import {MARKS, causeOf, labelOf} from "./words.js";

const heading = text => el("h3.pad", text);
const delta = (kind, sign, what, figure) => el("div.delta" + kind, el("span", {"aria-hidden": "true"}, sign), what, el("span.num", figure));

export function leftOut(thread, i) {
  const a = thread.activationAt(i), old = a && thread.activationBefore(a);
  if (!old) return el("p.blank.dim", "Nothing had left the prompt at this step: the first activation is in force.");
  const {activation, cached, cost} = thread.steps, after = activation.indexOf(a.id), before = after - 1;
  const gone = a.first === null ? [] : thread.between(old.first || 0, a.first - 1).filter(seq => seq !== a.task);
  const replaced = old.observed.filter(id => !a.observed.includes(id)), heirs = Map.groupBy(replaced, id => a.observed.find(one => holds(thread, one, id)) || 0);
  const cuts = Object.entries(thread.details(a.id)?.cuts || {});
  return [el("div.card", el("b", `Activation ${a.id}, because ${causeOf(a)}`),
    after > 0 && el("p.small.num", `Prompt ${int(thread.prompt(before))} → ${int(thread.prompt(after))} tokens.${cached[after] >= 0 ? ` Of the latter ${int(thread.prompt(after) - cached[after])} were not in the cache.` : ""} The step cost ${usd(cost[after])}, the one before it ${usd(cost[before])}.`),
    el("p.small", "Nothing is lost: the log keeps all of it, and the model can recall it.")),
  heading(`${plural(gone.length, "message")} left the prompt`),
  gone.map(seq => {
    const {by} = thread.whereAt(seq, Math.max(after, 0));
    return delta(".gone", "−", messageLink(thread, seq, msg => go({msg})), by && `→ o${by}`);
  }),
  replaced.length > 0 && heading(`${plural(replaced.length, "observation")} were condensed, or left out`),
  [...heirs].map(([heir, ids]) => {
    const key = `lost${heir}-${ids[0]}`;
    return el("div.ob", foldHead(key, null, heir ? "o" + heir : "none", `stands for ${ids.map(id => "o" + id).join(", ")}`, ""), opened.has(key) && el("div.in", lost(thread, heir, ids)));
  }),
  cuts.length > 0 && heading(`${plural(cuts.length, "older result")} are cut`),
  cuts.map(([handle, chars]) => delta("", "✂", el("span.mono.clip", handle), `${int(chars)} characters shown`))];
}

const holds = (thread, id, part) => id === part || (thread.observations.get(id)?.parts || []).some(one => holds(thread, one, part));

// The lines that a reflection changed or dropped, the weightiest first.
function lost(thread, heir, ids) {
  const by = heir ? thread.observation(heir) : {lines: []}, all = ids.map(id => thread.observation(id)), not = missing(by, ...all);
  if (not) return not;
  const kept = new Set(by.lines.map(line => line.text)), weights = Object.keys(MARKS);
  const lines = all.flatMap(one => one.lines.map(line => ({...line, node: 0, of: one.id}))), gone = lines.filter(line => !kept.has(line.text));
  gone.sort((x, y) => weights.indexOf(x.priority) - weights.indexOf(y.priority));
  return [el("p.small.dim", `${gone.length} of ${lines.length} lines do not stand there word for word`), linesOf(gone)];
}

export function compared(thread, i) {
  const within = step => Math.max(1, Math.min(thread.count, step)), other = within(place.with ?? i) - 1;
  const [old, now] = [other, i].map(k => thread.partsAt(k)), not = missing(old, now), before = thread.steps.activation.indexOf(thread.steps.activation[i]);
  const head = el("div.row.wrap.small", el("label.row", "Compared with step", el("input.short", {type: "number", min: 1, max: thread.count, value: other + 1, onchange: event => go({with: within(+event.target.value || 1)}, true)})),
    before > 0 && button("Last before this activation", () => go({with: before}, true)));
  if (not) return el("div.card", head, not);
  let same = 0, tokens = 0;
  while (same < old.length && same < now.length && old[same].hash === now[same].hash) tokens += now[same++].tokens;
  const without = (parts, others) => {
    const hashes = new Set(others.map(part => part.hash));
    return parts.slice(same).filter(part => !hashes.has(part.hash));
  };
  const went = without(old, now), came = without(now, old);
  return [el("div.card", head, el("p.small.num", el("b", `The first ${same} of ${plural(now.length, "part")} are the same`),
    ` (${int(tokens)} tokens, what a cache can serve). ${came.length} came, ${went.length} went; ${int(thread.prompt(other))} → ${int(thread.prompt(i))} tokens.`)),
  heading(same < now.length || same < old.length ? "From here on they differ" : "The two prompts are the same"),
  went.map(part => row(thread, part, ".del", "−")), came.map(part => row(thread, part, ".add", "+"))];
}

function row(thread, part, kind, sign) {
  const node = part.node === null ? null : thread.nodeOf(part.node), call = node?.calls[part.call];
  const name = part.observation !== null ? `o${part.observation}` : part.node === null ? part.kind : `#${part.node} · ${call ? "result of " + call.tool : node ? labelOf(node) : part.kind}`;
  return delta(kind, sign, el("span.clip", el("bdi", name)), [part.cut && "cut · ", int(part.tokens)]);
}
