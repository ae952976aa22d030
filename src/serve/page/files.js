// Files in and out: attached texts and PDFs, exported and imported conversations.
"use strict";

// ---- attachments ------------------------------------------------------------------------------------------------------------------------

const LARGEST = 1 << 20;                                  // characters of a text

// Returns {name, text, note}, or the result of readMedium; throws an Error with a message for the user.
async function readAttachment(file) {
  if (/^(image|audio|video)\//.test(file.type)) return readMedium(file);
  const pdf = file.type === "application/pdf" || /\.pdf$/i.test(file.name);
  if (file.size > (pdf ? 100 : 4) * LARGEST) throw new Error(`${file.name} is too large.`);
  const read = pdf ? await textOfPdf(file) : { text: await file.text() };
  if (read.text.includes("\0")) throw new Error(`${file.name} is no text. What can be attached: ${attachable()}.`);
  if (read.text.length > LARGEST) throw new Error(`${file.name} has more than a million characters.`);
  return { name: file.name, text: read.text, note: read.note ?? "" };
}

async function textOfPdf(file) {
  if (!window.pdfjsLib && !await load("page/lib/pdf.js")) throw new Error(`${file.name}: this build of Weft cannot read PDF files. Attach a text file.`);
  window.pdfjsLib.GlobalWorkerOptions.workerSrc = "page/lib/pdf.worker.js";
  const task = window.pdfjsLib.getDocument({ data: new Uint8Array(await file.arrayBuffer()), isEvalSupported: false, disableFontFace: true, useSystemFonts: true, verbosity: 0 });
  try {
    const pdf = await task.promise, pages = [];
    let n = 0;
    for (let i = 1; i <= pdf.numPages && n <= LARGEST; i++) {
      const content = await (await pdf.getPage(i)).getTextContent();
      pages.push(content.items.map((t) => t.str + (t.hasEOL ? "\n" : "")).join("").trim());
      n += pages.at(-1).length;
    }
    if (!pages.some(Boolean)) throw new Error(`${file.name} holds no text: its pages are pictures.`);
    return { text: pages.join("\n\n"), note: plural(pdf.numPages, "page") };
  } catch (e) {
    if (e.name === "PasswordException") throw new Error(`${file.name} has a password.`);
    if (["InvalidPDFException", "MissingPDFException", "UnknownErrorException"].includes(e.name)) throw new Error(`${file.name} is no PDF that can be read.`);
    throw e;
  } finally { task.destroy(); }
}

// ---- export -----------------------------------------------------------------------------------------------------------------------------

// Returns the JSON in parts: one string with all pictures may exceed the browser's limit.
async function exportJson(conversations) {
  const parts = [];
  for (const c of conversations) parts.push(parts.length ? ",\n" : '{"weft": 1, "conversations": [', JSON.stringify(await withMedia(c), null, 1));
  return [...parts, parts.length ? "]}\n" : '{"weft": 1, "conversations": []}\n'];
}

function exportMarkdown(c) {
  const names = { user: "User", assistant: "Assistant", tool: "Tool" };
  const parts = [`# ${c.title || "Conversation"}`];
  if (c.system) parts.push("## System", c.system);
  for (const n of path(c)) {
    parts.push(`## ${names[n.role]}`);
    if (n.reasoning) parts.push("<details><summary>Reasoning</summary>", n.reasoning, "</details>");
    for (const f of n.files ?? []) if (f.medium) parts.push(`*(${KINDS[f.kind].of}: ${f.name})*`);
    if (n.content || n.files?.length) parts.push(wholeText(n));
    for (const call of n.calls ?? []) parts.push("```json", JSON.stringify({ name: call.name, arguments: call.arguments }, null, 1), "```");
  }
  return parts.join("\n\n") + "\n";
}

function fileName(c, end) { return (c.title || "conversation").normalize("NFKD").replace(/[^\w]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 60).toLowerCase() + end; }

// ---- import -----------------------------------------------------------------------------------------------------------------------------

const asText = (v) => typeof v === "string" ? v : "";

// Takes only fields of the right form: imported data is untrusted.
function importedNode(m, id, parent) {
  const node = { id, parent, role: m.role, content: asText(m.content), reasoning: asText(m.reasoning) };
  const files = (Array.isArray(m.files) ? m.files : []).filter((f) => typeof f?.text === "string" || DATA_URL.test(f?.data)).map((f) => ({ name: asText(f.name), note: asText(f.note), ...(typeof f.text === "string" ? { text: f.text } : { data: f.data }) }));
  const calls = (Array.isArray(m.calls) ? m.calls : []).filter((c) => typeof c?.name === "string").map((c) => ({ id: asText(c.id), name: c.name, arguments: asText(c.arguments) }));
  if (files.length) node.files = files;
  if (calls.length) node.calls = calls;
  if (m.role === "tool") node.call = asText(m.call);
  return node;
}

const ROLES = ["user", "assistant", "tool"];

function fromWeft(c) {
  const nodes = Object.create(null);
  for (const m of Object.values(c.nodes ?? {})) if (typeof m?.id === "string" && ROLES.includes(m.role) && typeof m.content === "string") nodes[m.id] = importedNode(m, m.id, asText(m.parent));
  const chosen = {};
  for (const [k, v] of Object.entries(c.chosen ?? {})) if (typeof v === "string" && nodes[v]) chosen[k] = v;
  return { title: asText(c.title), system: asText(c.system), nodes: { ...nodes }, chosen };
}

// Converts conversations of llama-server's page: messages with parents, below a root and perhaps a system message.
function fromLlamaServer({ conv, messages }) {
  const made = { title: asText(conv?.name), system: "", nodes: {}, chosen: {} }, by = new Map(messages.map((m) => [m.id, m]));
  const shown = (m) => m && ROLES.includes(m.role) && m.type !== "root";
  const parentOf = (m) => { let at = by.get(m.parent); while (at && !shown(at)) at = by.get(at.parent); return at?.id ?? ""; };
  for (const m of messages) {
    if (m.role === "system") made.system ||= asText(m.content);
    if (!shown(m) || typeof m.id !== "string") continue;
    const calls = typeof m.toolCalls === "string" ? JSON.parse(m.toolCalls || "[]") : m.toolCalls ?? [];
    made.nodes[m.id] = importedNode({ role: m.role, content: m.content, reasoning: m.reasoningContent ?? m.thinking, call: m.toolCallId, calls: callsOfOpenai(calls),
      files: (m.extra ?? []).map((e) => ({ name: e?.name, text: e?.content, data: e?.base64Url ?? `data:${e?.mimeType};base64,${e?.base64Data}` })) }, m.id, parentOf(m));
    made.chosen[made.nodes[m.id].parent] = m.id;
  }
  const seen = new Set();                                  // marks the displayed branch, from its last message up
  for (let at = made.nodes[conv?.currNode]; at && !seen.has(at.id); at = made.nodes[at.parent]) { seen.add(at.id); made.chosen[at.parent] = at.id; }
  return made;
}

const callsOfOpenai = (calls) => (Array.isArray(calls) ? calls : []).map((c) => ({ id: c?.id, name: c?.function?.name, arguments: c?.function?.arguments }));

const mediumOfPart = (p) => ({ name: asText(p?.type), data: p?.image_url?.url ?? (p?.input_audio && `data:audio/${p.input_audio.format};base64,${p.input_audio.data}`) });

// Converts the messages of a request to /v1/chat/completions.
function fromMessages(messages) {
  const made = { title: "", system: "", nodes: {}, chosen: {} };
  let parent = "";
  for (const m of messages) {
    const content = Array.isArray(m?.content) ? m.content.map((p) => asText(p?.text)).join("") : asText(m?.content);
    if (["system", "developer"].includes(m?.role)) made.system += content;
    if (!ROLES.includes(m?.role)) continue;
    const node = importedNode({ role: m.role, content, files: (Array.isArray(m.content) ? m.content : []).map(mediumOfPart), reasoning: m.reasoning_content, call: m.tool_call_id, calls: callsOfOpenai(m.tool_calls) }, newId(), parent);
    made.nodes[node.id] = node;
    made.chosen[parent] = parent = node.id;
  }
  return made;
}

function fromJsonLines(text) {
  const all = [];
  for (const line of text.split("\n").filter((l) => l.trim())) {
    const r = JSON.parse(line);
    if (r.type === "session") all.push({ conv: r, messages: [] });
    else if (r.type === "message") all.at(-1).messages.push(r.message);
  }
  return all;
}

// Reads the files of a zip archive as texts.
async function unzip(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), u16 = (at) => view.getUint16(at, true), u32 = (at) => view.getUint32(at, true);
  let end = bytes.length - 22;
  while (end >= 0 && u32(end) !== 0x06054b50) end--;
  const texts = [];
  for (let at = u32(end + 16), i = u16(end + 10); i > 0; i--) {
    const method = u16(at + 10), size = u32(at + 20), from = u32(at + 42), data = from + 30 + u16(from + 26) + u16(from + 28);
    const raw = new Blob([bytes.subarray(data, data + size)]);
    texts.push(await new Response(method ? raw.stream().pipeThrough(new DecompressionStream("deflate-raw")) : raw).text());
    at += 46 + u16(at + 28) + u16(at + 30) + u16(at + 32);
  }
  return texts;
}

function conversationsOf(content) {
  let given;
  try { given = JSON.parse(content); } catch { given = fromJsonLines(content); }
  if (given?.type === "session") given = fromJsonLines(content);        // a session with one line
  if (Array.isArray(given?.conversations)) return given.conversations.map(fromWeft);
  if (Array.isArray(given?.messages) && given.conv) return [fromLlamaServer(given)];
  if (Array.isArray(given?.messages)) return [fromMessages(given.messages)];
  if (!Array.isArray(given)) return [];
  if (given.every((c) => Array.isArray(c?.messages) && c.conv)) return given.map(fromLlamaServer);
  return given.every((m) => typeof m?.role === "string") ? [fromMessages(given)] : [];
}

// Saves the conversations of a file under new ids. Throws an Error with a message for the user.
async function importFile(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let found;
  try {
    const texts = bytes[0] === 0x50 && bytes[1] === 0x4b ? await unzip(bytes) : [new TextDecoder().decode(bytes)];
    found = texts.flatMap(conversationsOf);
  } catch { found = []; }
  found = found.filter((c) => Object.keys(c.nodes).length);
  if (!found.length) throw new Error(`${file.name} holds no conversations.`);
  for (const c of found) {
    const first = Object.values(c.nodes).find((n) => n.role === "user");
    const made = { ...newConversation(), ...c, title: (c.title || first?.content.trim().split("\n")[0] || "").slice(0, 200) };
    await takeMedia(made);
    await store.save(made);
  }
  return found.length;
}
