// What a person does to a run. Each is one request, and its outcome is said.
import {notice, say} from "./dom.js";
import {post} from "./service.js";

let acted = () => {};
export function onActed(callback) { acted = callback; }

// Sends a write, with its controls off until it is answered. Returns the answer, or null if it failed.
export async function send(controls, path, body, done) {
  for (const control of controls) control.disabled = true;
  try {
    const answer = await post(path, body);
    notice("");
    say(done);
    acted();
    return answer;
  } catch (error) {
    notice([error.message, error.cure].filter(Boolean).join(" "), "bad");
    acted();
    return null;
  } finally {
    for (const control of controls) control.disabled = false;
  }
}

export const runPath = (run, verb) => `runs/${encodeURIComponent(run)}/${verb}`;
