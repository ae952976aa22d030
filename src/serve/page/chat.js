// The page of weft serve: chats with the server's models through /v1/chat/completions, the endpoint that programs use
// too.
"use strict";

const PRESETS = { exact: { temperature: 0 }, balanced: { temperature: 0.7, top_p: 0.9 }, free: { temperature: 1.1, min_p: 0.05, top_p: 1 } };
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "repeat_penalty", "max_tokens", "seed"];
const settings = JSON.parse(localStorage.getItem("weft-settings") || "{}");
let current = newConversation(), context = 0, attached = [], ready = false, connecting = false, models = [];

function keepSettings() { localStorage.setItem("weft-settings", JSON.stringify(settings)); }
function notice(text) { $("notice").textContent = text; $("notice").hidden = !text; }
function busy() { return turns.has(current.id); }

// ---- the server -------------------------------------------------------------------------------------------------------------------------

async function ask(path) {
  const r = await reach(fetch(path, { headers: headers() }));
  if (!r.ok) throw await refusal(r);
  return r.json();
}

// Selects the model for the next answers. A model that is not loaded is loaded by its first request.
function choose() {
  const chosen = models.find((m) => m.id === settings.model);
  context = chosen?.meta?.n_ctx || 0;
  $("model").textContent = document.title = chosen?.id || "Weft";
  $("model").hidden = models.length > 1;
  $("models").value = settings.model;
  defaults();
}

// Lists the models and their states, which change as models are loaded and unloaded.
async function listModels() {
  models = (await ask("v1/models")).data;
  if (!models.some((m) => m.id === settings.model)) settings.model = models[0]?.id;
  $("models").replaceChildren(...models.map(modelOption));
  $("models").hidden = models.length < 2;
  choose();
}

function isLoaded() { return ["loaded", undefined].includes(models.find((m) => m.id === settings.model)?.status?.value); }

// Shows the server's defaults for empty settings. A model is not loaded for this.
async function defaults() {
  const inputs = models.find((m) => m.id === settings.model)?.architecture?.input_modalities;
  showTakes(inputs && { vision: inputs.includes("image"), audio: inputs.includes("audio") });
  if (!isLoaded()) return;
  const props = await ask(`props?autoload=false&model=${encodeURIComponent(settings.model ?? "")}`).catch(() => ({}));
  const params = props.default_generation_settings?.params ?? {};
  context ||= props.default_generation_settings?.n_ctx || 0;
  for (const name of NUMBERS) {
    const value = name === "max_tokens" ? params.n_predict : params[name];
    if (name === "max_tokens" && !(value >= 0)) $(name).placeholder = "no limit";
    else if (name === "seed") $(name).placeholder = "random";
    else if (value != null) $(name).placeholder = String(Number(value.toPrecision(6)));
  }
}

function modelOption(m) {
  const state = m.status?.value;
  return element("option", { value: m.id }, m.id + (state && state !== "loaded" ? ` (${state === "unloaded" ? "not loaded" : state})` : ""));
}

// Retries until the server has a model; the page can be used meanwhile.
async function connect() {
  if (connecting) return;
  connecting = true;
  for (;;) {
    try {
      await ask("health");
      await listModels();
      ready = true;
      notice("");
      drawGauge();
      break;
    } catch (e) {
      if (e.status === 401) { notice("This server wants a key. Enter it in the settings (⚙)."); break; }
      notice(e.status === 503 ? "The model is loading." : e.message);
      await new Promise((done) => setTimeout(done, 1000));
    }
  }
  connecting = false;
}

// ---- the list of conversations ----------------------------------------------------------------------------------------------------------

const LIST = { shown: 200, found: null, asked: 0 };

function drawList() {
  const query = $("search").value.trim(), words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const all = store.sorted().filter((h) => !words.length || LIST.found?.has(h.id) || words.every((w) => h.title.toLowerCase().includes(w)));
  const rows = all.slice(0, LIST.shown).map((h) => element("div", { class: h.id === current.id ? "chosen" : "" },
    element("button", { class: "name", title: h.title, onclick: () => { openConversation(h.id); $("side").classList.remove("open"); } }, (turns.has(h.id) ? "● " : "") + (h.title || "…")),
    button("✕", "Delete " + h.title, () => { if (confirm(`Delete “${h.title}”?`)) forget(h.id); })));
  if (all.length > LIST.shown) rows.push(element("button", { class: "plain small", onclick: () => { LIST.shown += 1000; drawList(); } }, `${all.length - LIST.shown} more`));
  $("list").replaceChildren(...rows);
}

// Searches titles at once, and texts as they are read from the store.
async function search() {
  const query = $("search").value.trim(), own = ++LIST.asked;
  LIST.found = null;
  drawList();
  if (!query) return;
  const found = await store.search(query, () => own === LIST.asked);
  if (own !== LIST.asked) return;
  LIST.found = found;
  drawList();
}

async function forget(id) {
  turns.get(id)?.stop();
  await store.remove(id);
  if (id === current.id) fresh();
  drawList();
}

async function openConversation(id) {
  const c = turns.get(id)?.conversation ?? await store.get(id);
  if (c) show(c);
}

function drawGauge(used = path(current).findLast((n) => n.used)?.used) {
  $("gauge").hidden = !context || !used;
  if (!context || !used) return;
  const n = Math.min(used, context);                     // the last token may not be in the cache
  $("used").value = n / context;
  $("used-text").textContent = `${n} of ${context}`;
}

function show(conversation) {
  const turn = turns.get(current.id);
  if (turn) turn.view = null;                            // it continues in the background
  current = conversation;
  $("system").value = current.system;
  const begun = path(current).findLast((n) => n.live);
  if (begun && !busy()) new Turn(current, begun).run(null);
  else draw();
  showStatus();
  drawList();
  drawGauge();
}
function fresh() { show(newConversation()); $("input").focus(); }

// ---- requests ---------------------------------------------------------------------------------------------------------------------------

function addNode(node) {
  current.nodes[node.id] = node;
  current.chosen[node.parent] = node.id;
  return node;
}

function say(text, parent, files) {
  const node = addNode({ id: newId(), parent, role: "user", content: text, ...(files?.length ? { files: storeMedia(current.id, files) } : {}) });
  current.title ||= (text.trim() || files[0].name).split("\n")[0].slice(0, 80);
  answer(node.id);
}

async function messageOf(conversation, n) {
  if (n.role === "user") return { role: "user", content: await contentOf(conversation.id, n) };
  if (n.role === "tool") return { role: "tool", tool_call_id: n.call, content: n.content };
  const calls = (n.calls ?? []).map((c) => ({ id: c.id, type: "function", function: { name: c.name, arguments: c.arguments } }));
  return { role: "assistant", content: n.content, ...(n.reasoning ? { reasoning_content: n.reasoning } : {}), ...(calls.length ? { tool_calls: calls } : {}) };
}

// begun: an answer to continue
async function request(parent, begun) {
  const messages = [], nodes = begun?.content ? [begun] : [], conversation = current, wanted = { messages, stream: true, return_progress: true, stream_options: { include_usage: true } };
  for (let at = parent; at; at = current.nodes[at].parent) if (!current.nodes[at].error) nodes.unshift(current.nodes[at]);
  if (current.system) messages.push({ role: "system", content: current.system });
  for (const name of NUMBERS) if (settings[name] != null && settings[name] !== "") wanted[name] = settings[name];
  if (settings.model) wanted.model = settings.model;
  if (settings.tools) wanted.tools = JSON.parse(settings.tools);
  if (settings.probabilities) Object.assign(wanted, { logprobs: true, top_logprobs: 5 });
  for (const n of nodes) messages.push(await messageOf(conversation, n));
  return wanted;
}

// Requests a new answer, or continues one that was cut.
function answer(parent, begun) {
  const wanted = request(parent, begun), node = begun || addNode({ id: newId(), parent, role: "assistant", content: "" });
  const turn = new Turn(current, node);
  delete node.cut;
  if (path(current).some((n) => n.files?.some((f) => f.medium))) turn.status = "Sending pictures and sounds …";
  store.save(current);                                   // so that it appears in the list at once
  return turn.run(wanted);
}

function showTurn(turn) {
  if (turn.conversation === current) draw();
  showStatus();
  drawList();
}

function endTurn(turn) {
  showStatus();
  drawList();
  if (turn.conversation !== current) return;
  if (!isLoaded()) listModels().then(() => drawGauge(), () => {});
  const { node, view } = turn;
  articleOf(node)?.replaceWith(drawNode(node, path(current).at(-1) === node));
  $("spoken").textContent = node.error || view?.spoken || "";
  drawGauge();
}

// Shows next to the input the progress of the displayed conversation.
function showStatus() {
  const turn = turns.get(current.id);
  $("send").hidden = !!turn;
  $("stop").hidden = !turn;
  $("rate").textContent = turn?.status ?? "";
}

// ---- controls ---------------------------------------------------------------------------------------------------------------------------

function drawFiles() {
  $("files").replaceChildren(...attached.map((f, i) => element("span", {}, f.blob ? mediumView(f) : f.name + (f.note ? `, ${f.note}` : ""), button("✕", "Leave out " + f.name, () => { attached.splice(i, 1); drawFiles(); }))));
}

async function attach(files) {
  notice("");
  for (const f of files) {
    try { attached.push(await readAttachment(f)); } catch (e) { notice(e.message); }
  }
  drawFiles();
}

function send() {
  const text = $("input").value;
  if (busy() || (!text.trim() && !attached.length)) return;
  if (!ready) { connect(); return; }
  notice("");
  const files = attached;
  attached = [];
  drawFiles();
  $("input").value = "";
  grow();
  say(text, path(current).at(-1)?.id ?? "", files);
}

function grow() { const i = $("input"); i.style.height = "auto"; i.style.height = i.scrollHeight + 2 + "px"; }
const phone = matchMedia("(pointer: coarse)");

async function bring(files) {
  let n = 0;
  notice("");
  for (const f of files) {
    try { n += await importFile(f); } catch (e) { notice(e.message); }
  }
  if (n) notice(`${plural(n, "conversation")} imported.`);
  drawList();
}

async function exportAll() {
  const all = [];
  await store.each((c) => all.push(c));
  download("weft-conversations.json", "application/json", await exportJson(all));
}

// Spreadsheets and similar programs add a picture of the text: the text is used. A file may come with its path as text.
function pastedFiles(data) { return ["text/html", "text/rtf"].some((type) => data.types.includes(type)) && data.types.includes("text/plain") ? [] : data.files; }

function wireFiles() {
  $("attach").addEventListener("click", () => $("chosen-files").click());
  $("chosen-files").addEventListener("change", (e) => { attach([...e.target.files]); e.target.value = ""; });
  $("record").addEventListener("click", record);
  $("input").addEventListener("paste", (e) => { if (pastedFiles(e.clipboardData).length) { e.preventDefault(); attach([...e.clipboardData.files]); } });
  document.addEventListener("dragover", (e) => e.preventDefault());
  document.addEventListener("drop", (e) => { e.preventDefault(); attach([...e.dataTransfer.files]); });
  $("export").addEventListener("click", exportAll);
  $("import").addEventListener("click", () => $("chosen-import").click());
  $("chosen-import").addEventListener("change", (e) => { bring([...e.target.files]); e.target.value = ""; });
  const one = (how) => async () => { $("save").open = false; await how(); };
  $("save-markdown").addEventListener("click", one(() => download(fileName(current, ".md"), "text/markdown", exportMarkdown(current))));
  $("save-json").addEventListener("click", one(async () => download(fileName(current, ".json"), "application/json", await exportJson([current]))));
  document.addEventListener("click", (e) => { if (!$("save").contains(e.target)) $("save").open = false; });
}

function wire() {
  $("form").addEventListener("submit", (e) => { e.preventDefault(); send(); });
  $("input").addEventListener("input", grow);
  $("input").addEventListener("keydown", (e) => { if (e.key === "Enter" && !e.shiftKey && !e.isComposing && !phone.matches) { e.preventDefault(); send(); } });
  $("stop").addEventListener("click", () => turns.get(current.id)?.stop());
  $("new").addEventListener("click", () => { fresh(); $("side").classList.remove("open"); });
  let typing;
  $("search").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(search, 120); });
  $("open-side").addEventListener("click", () => $("side").classList.add("open"));
  $("close-side").addEventListener("click", () => $("side").classList.remove("open"));
  $("theme").addEventListener("click", () => {
    settings.theme = getComputedStyle(document.documentElement).getPropertyValue("--back").trim() === "#fff" ? "dark" : "light";
    keepSettings();
    theme();
  });
  document.addEventListener("keydown", (e) => {
    if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k") { e.preventDefault(); $("side").classList.add("open"); $("search").focus(); }
    if ((e.ctrlKey || e.metaKey) && e.shiftKey && e.key.toLowerCase() === "o") { e.preventDefault(); fresh(); }
    if (e.key === "Escape" && $("side").classList.contains("open")) $("side").classList.remove("open");
  });
  addEventListener("pagehide", () => { for (const t of turns.values()) store.save(t.conversation); });
  wireFiles();
  wireSettings();
}

// ---- settings ---------------------------------------------------------------------------------------------------------------------------

function fillSettings() {
  for (const name of NUMBERS) $(name).value = settings[name] ?? "";
  $("key").value = settings.key ?? "";
  $("tools").value = settings.tools ?? "";
  $("probabilities").checked = !!settings.probabilities;
}

function wireSettings() {
  fillSettings();
  $("open-settings").addEventListener("click", () => { listModels().catch(() => {}); $("settings").showModal(); });
  for (const name of NUMBERS) $(name).addEventListener("change", (e) => { settings[name] = e.target.value === "" ? null : Number(e.target.value); $("preset").value = ""; keepSettings(); });
  $("preset").addEventListener("change", (e) => {
    if (!e.target.value) return;
    for (const name of ["temperature", "top_p", "top_k", "min_p"]) settings[name] = PRESETS[e.target.value][name] ?? null;
    keepSettings();
    fillSettings();
  });
  $("defaults").addEventListener("click", () => { for (const name of NUMBERS) delete settings[name]; keepSettings(); fillSettings(); $("preset").value = ""; });
  $("probabilities").addEventListener("change", (e) => { settings.probabilities = e.target.checked; keepSettings(); draw(); });
  $("models").addEventListener("change", (e) => { settings.model = e.target.value; keepSettings(); choose(); drawGauge(); });
  $("key").addEventListener("change", (e) => { settings.key = e.target.value; keepSettings(); connect(); });
  $("tools").addEventListener("change", (e) => {
    let wrong = "";
    try { if (e.target.value.trim() && !Array.isArray(JSON.parse(e.target.value))) wrong = "This has to be an array: [{\"type\": \"function\", \"function\": {…}}]"; } catch (x) { wrong = "This is no JSON: " + x.message; }
    e.target.setCustomValidity(wrong);
    e.target.reportValidity();
    if (wrong) return;
    settings.tools = e.target.value.trim();
    keepSettings();
  });
  $("system").addEventListener("change", (e) => { current.system = e.target.value; if (path(current).length) store.save(current); });
}

function theme() { document.documentElement.className = settings.theme ?? ""; }

async function start() {
  theme();
  wire();
  sight.watch();
  await store.open();
  const last = store.sorted()[0], c = last && Date.now() - last.changed < 10 * 60 * 1000 && await store.get(last.id);
  show(c || current);                                    // a reloaded page shows its last conversation
  $("input").focus();
  connect();
}
start();
