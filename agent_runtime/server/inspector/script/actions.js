// What a person does to a run. Each is one request, and its outcome is said.
import {enable, notice, say} from "./dom.js";
import {Problem, post} from "./service.js";

let acted = () => {};
export function onActed(callback) { acted = callback; }

// Does something with its controls off until it is done. Returns the answer, or null if it failed.
export async function act(controls, work, done) {
  enable(controls, false);
  try {
    const answer = await work();
    notice("");
    say(done);
    return answer;
  } catch (error) {
    notice(error.told, "bad");
    return null;
  } finally {
    acted();
    enable(controls, true);
  }
}

export const runPath = (run, verb) => `runs/${encodeURIComponent(run)}/${verb}`;

// Two requests, of which the first counts even if the second fails.
export async function both(first, second, half) {
  const answer = await first();
  try {
    await second(answer);
  } catch (error) { throw new Problem(error.status, `${half} ${error.message}`, error.cure); }
  return answer;
}

// An answer resumes nothing by itself; the run goes on once it waits for nothing more.
export const answerTo = (controls, question, value, done) => act(controls, () => both(
  () => post(`questions/${encodeURIComponent(question.id)}/answer`, {digest: question.digest, ...value}),
  ({resumable, run_id}) => resumable && post(runPath(run_id, "resume"), {}),
  "The answer is stored, but the run does not go on yet."), done);
