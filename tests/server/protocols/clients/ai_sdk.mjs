// A whole run by the AI SDK's transport and reader: a tool, a reconnect, an approval.
import { DefaultChatTransport, readUIMessageStream } from "ai";

const [url] = process.argv.slice(2);
const transport = new DefaultChatTransport({ api: `${url}/ai-sdk/desk` });
const chatId = "talk-ai-sdk";
const user = { id: "u1", role: "user", parts: [{ type: "text", text: "Go" }] };
const named = (message, tool) => message?.parts.find((part) => part.toolName === tool);
const sent = { chatId, trigger: "submit-message", messageId: undefined };

async function read(stream, message, each = () => {}) {
  let last = message;
  for await (const one of readUIMessageStream({ stream, message, terminateOnError: true })) {
    last = one;
    each(one);
  }
  return last;
}

// The connection breaks while the tool `hold` waits.
const controller = new AbortController();
const first = await transport.sendMessages({
  ...sent, messages: [user], abortSignal: controller.signal,
});
let broken;
await read(first, undefined, (message) => {
  if (named(message, "hold")) { broken = message.id; controller.abort(); }
}).catch(() => {});

const resumed = await transport.reconnectToStream({ chatId });
let opened = false;
const asking = await read(resumed, undefined, (message) => {
  if (!opened && named(message, "hold")) {
    opened = true;
    fetch(`${url}/gate`, { method: "POST" });
  }
});
const asked = structuredClone(named(asking, "erase"));
const idle = await transport.reconnectToStream({ chatId });

// As `addToolApprovalResponse` of `useChat` does.
const part = named(asking, "erase");
part.state = "approval-responded";
part.approval = { ...part.approval, approved: true };
const last = await transport.sendMessages({ ...sent, messages: [user, asking] });
const message = await read(last, asking);

console.log(JSON.stringify({ broken, asked, idle, message }));
process.exit(0);
