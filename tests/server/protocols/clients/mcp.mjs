// A whole task by the MCP SDK's client: a tool, a reconnect, an approval.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url] = process.argv.slice(2);
async function connected() {
  const client = new Client({ name: "test", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(new URL(`${url}/mcp`)));
  return client;
}
const value = (result) => {
  if (result.isError) throw new Error(JSON.stringify(result.content));
  return result.structuredContent ?? JSON.parse(result.content[0].text);
};

const first = await connected();
const { tools } = await first.listTools();
const started = value(await first.callTool({ name: "start_task", arguments: { task: "Go" } }));
await first.close();

const client = await connected();
const progress = [];
const wait = { name: "task_result", arguments: { run_id: started.run_id } };
let follows;
const following = new Promise((resolve) => (follows = resolve));
const onprogress = (one) => {
  progress.push(one);
  follows();
};
const waiting = client.callTool(wait, undefined, { onprogress });
// Else the question may come before the server follows the run, and is all that it reports.
await following;
await fetch(`${url}/gate`, { method: "POST" });
const asking = value(await waiting);
const question = asking.questions[0];
const answer = { question_id: question.id, answer: { allow: true } };
await client.callTool({ name: "answer_question", arguments: answer });
const ended = value(await client.callTool(wait));

console.log(JSON.stringify({ tools: tools.map((one) => one.name), progress, asking, ended }));
process.exit(0);
